"""`scripts/verify --short`: the tests of the rows, with few rounds and without judging time."""

import os
import subprocess
import sys
import time

from cluster.petstore import ROOT

from . import ROWS
from .suite import CARGO, build, folder

# Binaries that test promises only, or faults of an engine, which no row names. All of their tests run, those of the test code, too.
WHOLE = ("promises", "simulation", "lost_connections")


def run(rows, seed):
    """Runs the short form of the rows. Returns true if all tests pass."""
    tests = {}
    for row in rows:
        names = [*row.tests, *row.controls, *row.short]
        if not names:
            say(f"promise {row.number} has no short form: {row.promise}")
        tests.setdefault(row.binary, []).extend(names)
    if len(rows) == len(ROWS):
        for binary in WHOLE:
            tests.setdefault(binary, [binary])
    say(f"seed {seed}")
    environment = os.environ | {"PETSTORE_SEED": str(seed)}
    # Most tests wait for other processes.
    environment.setdefault("RUST_TEST_THREADS", str(3 * len(os.sched_getaffinity(0))))
    environment.pop("PETSTORE_ROUNDS", None)
    if len(rows) == len(ROWS):
        # As scripts/test, whose build is used again.
        environment.setdefault("CARGO_INCREMENTAL", "0")
    passed = True
    for binary, names in tests.items():
        is_whole = binary in WHOLE and len(rows) == len(ROWS)
        selected = [] if is_whole or not names else ["--", "--exact", *names]
        begin = time.monotonic()
        command = ["cargo", "test", "--no-fail-fast", *CARGO, f"--test={binary}", *selected]
        failed = False
        if names:
            build(binary, environment=environment)
            failed = subprocess.run(command, cwd=ROOT, env=environment).returncode != 0
        say(f"{folder(binary)} {'FAILED' if failed else 'passed'} ({time.monotonic() - begin:.0f} s)")
        passed = passed and not failed
    return passed


def say(text):
    print(f"scripts/verify: {text}", file=sys.stderr, flush=True)
