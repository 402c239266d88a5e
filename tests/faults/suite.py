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
        CONTROL="two acknowledged rows that are deleted, and one that nobody sent, are noticed",
        ROUNDS=200,
        tests=("crash::an_acknowledged_write_survives_kill_9",),
    ),
    Suite(
        NUMBER=2,
        PROMISE="the sync comes before the answer",
        FIGURE="10,000 answers in traces of system calls, 0 out of order",
        CONTROL="where strace lets syncs report success without carrying them out, every answer is out of order",
        ROUNDS=10_000,
        tests=("sync_order::the_sync_comes_before_the_answer",),
    ),
    Suite(
        NUMBER=3,
        PROMISE="a power loss takes nothing that was acknowledged",
        FIGURE="1,000 images of what the disk may hold (unsynced writes dropped or torn), 0 acknowledged lost",
        CONTROL="where syncs report success without being carried out, images lose acknowledged writes",
        ROUNDS=1_000,
        tests=("power_loss::a_power_loss_takes_nothing_that_was_acknowledged",),
    ),
    Suite(
        NUMBER=12,
        PROMISE="a sync error is fatal, not ignored",
        FIGURE="50 syncs that fail (EIO), 0 false 201, not ready, exit status 1",
        CONTROL="where the one sync reports success without being carried out, answers without a sync are found",
        ROUNDS=50,
        tests=("sync_error::a_failed_sync_ends_the_process",),
    ),
    Suite(
        NUMBER=13,
        PROMISE="a full disk is survived",
        FIGURE="20 times a small disk is full and has room again: writes 503, reads 200, recovers alone",
        CONTROL="while there is room nothing is refused; rows that are deleted or added are noticed",
        ROUNDS=20,
        tests=("full_disk::a_full_disk_refuses_writes_and_answers_reads",),
    ),
    Suite(
        NUMBER=14,
        PROMISE="a read-only disk is read",
        FIGURE="started on one, and when it becomes one, 20 times each: writes 503, reads 200",
        CONTROL="while it is writable nothing is refused; rows that are deleted or added are noticed",
        ROUNDS=20,
        tests=("read_only_disk::a_read_only_disk_is_read", "read_only_disk::a_disk_that_becomes_read_only_is_read"),
    ),
    Suite(
        NUMBER=32,
        PROMISE="a clock that jumps prolongs nothing",
        FIGURE="500 jumps of an hour or a day, forth and back: limits sane, ids unique, no expiry prolonged",
        CONTROL="a session judged by its age alone would be prolonged",
        ROUNDS=500,
        tests=("clock_jumps::a_clock_that_jumps_prolongs_nothing", "clock_jumps::a_clock_that_jumps_keeps_nobody_out"),
    ),
    Suite(
        NUMBER=34,
        PROMISE="the writer's death is loud",
        FIGURE="50 panics within a write: those who wait get 503, not ready, exit status 1",
        CONTROL="after a write that fails without a panic the service goes on",
        ROUNDS=50,
        tests=("dead_writer::a_panic_of_the_writer_ends_the_process",),
    ),
    Suite(
        NUMBER=35,
        PROMISE="the write-ahead log is bounded",
        FIGURE="a reader of another connection that never ends, under writes: below the limit of 1 GiB (262,144 pages)",
        CONTROL="without a limit, the same writes under the same reader make the log larger",
        ROUNDS=262_144,
        tests=("wal_bound::a_reader_that_never_ends_does_not_fill_the_disk",),
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
