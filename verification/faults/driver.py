"""scripts/verify: runs rows and prints their measurements."""

import argparse
import datetime
import importlib
import secrets
import signal
import sys
from pathlib import Path

from cluster.petstore import ROOT
from cluster.processes import Failed

from . import ROWS, report, scripted, short, suite
from .trial import Result, Trial


def main():
    options = parse()
    # SIGTERM takes the cluster down, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.render:
        report.render(ROWS)
        return
    if options.short:
        sys.exit(not short.run(options.rows, options.seed))
    today = datetime.date.today()
    print(f"seed {options.seed}, {today}", file=sys.stderr)
    kept = True
    print("| # | promise | figure | measured | kept |\n| --- | --- | --- | --- | --- |", flush=True)
    with Trial(options) as trial:
        for row in options.rows:
            trial.say(f"row {row.number}: {row.promise}")
            try:
                result = run(row, trial)
            except Failed as error:
                result = Result("did not complete", [str(error)])
            for failure in result.failures:
                trial.failed = True
                trial.say(f"row {row.number} FAILED: {failure}")
            kept = kept and result.kept
            outcome = "yes" if result.kept else f"NO: {'; '.join(result.failures)}"
            print(f"| {row.number} | {row.promise} | {row.goal} | {result.measured} | {outcome} |", flush=True)
            # Fewer rounds do not reach the goal, so the page keeps its last full measurement.
            if options.rounds is None:
                report.record(row, result, options.seed, today)
                report.render(ROWS)
    print(f"\nSeed {options.seed}, {today}.")
    sys.exit(not kept)


def run(row, trial):
    module = importlib.import_module(f".{row.module}", __package__) if row.module else scripted if row.script else suite
    return module.run(row, trial)


def parse():
    parser = argparse.ArgumentParser(
        prog="scripts/verify", description="Tests petstore's promises by causing faults, and writes docs/evidence/promises.md. "
        "Judges time, so the machine must be idle. Needs what scripts/test installs."
    )
    by_number = {str(row.number): row for row in ROWS}
    every = ", ".join(by_number)
    parser.add_argument("rows", metavar="ROW", nargs="*", help=f"rows, in the order to run them (default: all: {every})")
    parser.add_argument(
        "--short", action="store_true",
        help="run few rounds, which judge outcome, order, completeness and loss, never time; leaves docs/evidence/promises.md unchanged",
    )
    parser.add_argument(
        "--rounds", "--minutes", type=int, help="rounds of each row, minutes of row 42; leaves docs/evidence/promises.md unchanged"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="seed of an earlier run, to repeat it")
    parser.add_argument("--dir", type=Path, default=ROOT / "target", help="folder for the databases (default: target)")
    parser.add_argument("--petstore", type=Path, metavar="FILE", help="built petstore for the rows that need a cluster")
    parser.add_argument("--through-haproxy", action="store_true", help="connect petstore to the primary through HAProxy")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    parser.add_argument("--render", action="store_true", help="run nothing; render docs/evidence/promises.md from promises.json")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(by_number):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.short and options.rounds is not None:
        parser.error("--short has a fixed number of rounds")
    options.rows = [by_number[number] for number in options.rows or by_number]
    return options


if __name__ == "__main__":
    main()
