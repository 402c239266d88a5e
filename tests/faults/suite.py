"""Rows that are tests of `tests/promises`: cargo's run has their short forms, this the full ones.

A test reads PETSTORE_ROUNDS and PETSTORE_SEED (`tests/promises/trial.rs`), prints how far it is while it runs, and
last what it measured. It passes where the promise was kept.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from typing import NamedTuple

from cluster.petstore import ROOT
from cluster.processes import Failed

from .trial import Result

CARGO = ["cargo", "test", "--locked", "--release", "--test", "promises"]
# So that a run that ends in a failure says why, and nothing else does.
LAST_WORDS = 15


class Suite(NamedTuple):
    """One row: the test's name, or several whose figures stand side by side."""

    NUMBER: int
    PROMISE: str
    FIGURE: str
    CONTROL: str
    ROUNDS: int
    tests: tuple

    @property
    def test(self):
        """Where it is, for the page."""
        return ", ".join(f"`tests/promises` {name}" for name in self.tests)

    def run(self, trial):
        build()
        measured, failures = [], []
        for name in self.tests:
            figure, failure = run_test(trial, name, trial.rounds(self.ROUNDS), self.NUMBER)
            measured.append(figure)
            failures += failure
        return Result("; ".join(measured), failures)


ROWS = (
    Suite(
        NUMBER=1,
        PROMISE="an acknowledged write survives a crash",
        FIGURE="200 rounds of `kill -9` under 32 clients, 0 lost, 0 doubled, `integrity_check` ok",
        CONTROL="a row that is deleted behind the ledger's back is missed",
        ROUNDS=200,
        tests=("crash::an_acknowledged_write_survives_kill_9",),
    ),
    Suite(
        NUMBER=6,
        PROMISE="one effect for each idempotency key",
        FIGURE="500 keys, 20 requests at once with each, over 3 processes and in one: 1 row each",
        CONTROL="without the key, each request has its effect",
        ROUNDS=500,
        tests=(
            "once::requests_at_once_over_three_processes_have_one_effect_for_each_key",
            "once::requests_at_once_have_one_effect_for_each_key_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=7,
        PROMISE="the misuse of an idempotency key is refused",
        FIGURE="1,000 cases (another body, another account, after a restart, after expiry) as decided",
        CONTROL="with its record spoilt, the same request is refused",
        ROUNDS=1000,
        tests=(
            "misuse::a_key_is_answered_as_decided_on_postgresql",
            "misuse::a_key_is_answered_as_decided_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=8,
        PROMISE="a client that goes away harms nothing",
        FIGURE="5,000 resets at a random byte, each sent again: one effect each, no connection left",
        CONTROL="without the key, what is sent again is done again",
        ROUNDS=5000,
        tests=(
            "gone_client::a_request_that_was_cut_off_anywhere_is_carried_out_once_when_it_is_sent_again",
            "gone_client::a_request_that_was_cut_off_anywhere_is_carried_out_once_on_postgresql_too",
        ),
    ),
)


def build():
    """Before the run, so that what the compiler says is not taken for the test's."""
    if not shutil.which("cargo"):
        raise Failed("cargo is missing: install Rust")
    if subprocess.run([*CARGO, "--no-run"], cwd=ROOT).returncode:
        raise Failed("tests/promises does not build")


def run_test(trial, name, rounds, number):
    """What it measured, and why it failed, where it did. Its log is kept in target."""
    environment = os.environ | {"PETSTORE_ROUNDS": str(rounds), "PETSTORE_SEED": str(trial.seed)}
    log_path = ROOT / "target" / f"promise-{number}.log"
    log_path.parent.mkdir(exist_ok=True)
    measured, ran, failed = "nothing", False, False
    with log_path.open("w") as log, session([*CARGO, name, "--", "--exact", "--nocapture"], environment, log) as test:
        for line in test.stdout:
            log.write(line)
            log.flush()
            # The runner may have begun the line with the test's name.
            _, told, figure = line.partition("measured: ")
            if told:
                measured = figure.strip()
            # From here on the runner repeats itself.
            failed = failed or line == "failures:\n"
            if line.strip() and not told and not failed:
                trial.say(line.strip())
            ran = ran or "1 passed" in line or "1 failed" in line
        status = test.wait()
    if not ran:
        return measured, [f"there is no test {name}, or it did not come to its end: see {log_path}"]
    if status:
        return measured, [f"{why_it_failed(log_path.read_text(errors='replace'))} (the log: {log_path})"]
    if measured == "nothing":
        return measured, [f"{name} did not say what it measured"]
    return measured, []


@contextlib.contextmanager
def session(command, environment, log):
    """A process and all that it starts, none of which outlives this."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        errors="replace", start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def why_it_failed(log):
    """The message of the panic that ended the test, in one line."""
    found = re.search(r"^thread '.*' .*panicked at .*:\n((?:.*\n)*?)(?=note: |stack backtrace|\n|test |$)", log, re.M)
    words = found[1].splitlines() if found and found[1].strip() else log.splitlines()[-LAST_WORDS:]
    return " ".join(" ".join(words).split())
