"""Rows that tests in Rust measure. `scripts/verify` runs their full form, `scripts/verify --short` the short one.

A test reads PETSTORE_ROUNDS and PETSTORE_SEED (`tests/testkit/src/trial.rs`), prints its progress, and finally its
measurement. It passes if the promise is kept.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time

from cluster.petstore import ROOT
from cluster.processes import Failed

from .trial import Result

# The tests of both packages and the program that they run, in one selection, so that nothing is compiled twice.
CARGO = ["--locked", "--package=petstore", "--package=bounded-http", "--package=postgres-group-commit",
         "--package=sqlite-group-commit", "--package=petstore-verification", "--features=petstore/otlp"]


def run(row, trial):
    build(row.binary, "--release")
    measured, failures = [], []
    for names in [row.tests] if row.at_once else [[name] for name in row.tests]:
        figures, failure = run_tests(trial, row, names)
        measured += figures
        missing = [] if len(figures) == len(names) else [f"{' or '.join(names)} printed no measurement"]
        failures += failure or missing
    for name in row.controls:
        failures += run_tests(trial, row, [name])[1]
    return Result("; ".join(measured) or "nothing", failures)


def folder(binary):
    """Returns the path of a test binary, which is that of the product, of verification or of an engine."""
    patterns = (f"verification/tests/{binary}", f"tests/{binary}", f"crates/*/tests/{binary}.rs")
    return next(str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern))


def build(binary, *flags, environment=None):
    """Builds the program and a test binary before it runs, so that its output does not contain the compiler's."""
    if not shutil.which("cargo"):
        raise Failed("cargo is missing: install Rust")
    for command in (["build", "--bin=petstore"], ["test", "--no-run", f"--test={binary}"]):
        if subprocess.run(["cargo", *command, *CARGO, *flags], cwd=ROOT, env=environment).returncode:
            raise Failed(f"{folder(binary)} does not build")


def run_tests(trial, row, names):
    """Runs tests at the same time. Returns their measurements and a list of their failures. The log is kept in target."""
    rounds = trial.rounds(row.rounds)
    environment = os.environ | {"PETSTORE_ROUNDS": str(rounds), "PETSTORE_SEED": str(trial.seed)}
    log_path = ROOT / "target" / f"promise-{row.number}-{names[0].rpartition('::')[2]}.log"
    log_path.parent.mkdir(exist_ok=True)
    command = ["cargo", "test", "--release", *CARGO, f"--test={row.binary}", "--", "--exact", "--nocapture"]
    command += [f"--test-threads={len(names)}", *names]
    measured, ran, failed = [], False, False
    with log_path.open("w") as log, session(command, environment, log) as test:
        for line in test.stdout:
            log.write(line)
            log.flush()
            # The test runner may print the test's name on the same line.
            _, is_measurement, figure = line.partition("measured: ")
            if figure.strip():
                measured.append(figure.strip())
            # The test runner repeats the failures afterwards.
            failed = failed or line == "failures:\n"
            if line.strip() and not is_measurement and not failed:
                trial.say(line.strip())
            counts = re.match(r"test result: .* (\d+) passed; (\d+) failed", line)
            ran = ran or (counts is not None and int(counts[1]) + int(counts[2]) == len(names))
        status = test.wait()
    if not ran:
        return measured, [f"there is no test {' or '.join(names)}, or it did not complete: see {log_path.relative_to(ROOT)}"]
    if status:
        return measured, [f"{why_it_failed(log_path.read_text(errors='replace'))} (the log: {log_path.relative_to(ROOT)})"]
    return measured, []


@contextlib.contextmanager
def session(command, environment, log):
    """Runs a process in its own session and ends the whole session on exit."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        errors="replace", start_new_session=True,
    )
    try:
        yield process
    finally:
        # The test's database servers stop and delete their folders first. The rest is killed after a timeout.
        until = time.monotonic() + 20
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def why_it_failed(log):
    """Returns the message of the panic that ended the test, in one line."""
    found = re.search(r"^thread '.*' .*panicked at .*:\n((?:.*\n)*?)(?=note: |stack backtrace|\n|test |$)", log, re.M)
    return " ".join(found[1].split()) if found else "no panic"
