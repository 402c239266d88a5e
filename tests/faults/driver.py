"""scripts/promises: runs rows, and says what came out."""

import argparse
import datetime
import secrets
import signal
import sys
from pathlib import Path

from cluster.petstore import ROOT
from cluster.processes import Failed

from . import ROWS, report
from .trial import Result, Trial


def main():
    options = parse()
    # So that a stop takes the cluster down, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.render:
        report.render(ROWS)
        return
    today = datetime.date.today()
    print(f"seed {options.seed}, {today}", file=sys.stderr)
    kept = True
    print("| # | promise | figure | measured | kept |\n| --- | --- | --- | --- | --- |", flush=True)
    with Trial(options) as trial:
        for row in options.rows:
            trial.say(f"row {row.NUMBER}: {row.PROMISE}")
            try:
                result = row.run(trial)
            except Failed as error:
                result = Result("did not come to its end", [str(error)])
            for failure in result.failures:
                trial.failed = True
                trial.say(f"row {row.NUMBER} FAILED: {failure}")
            kept = kept and result.kept
            outcome = "yes" if result.kept else f"NO: {'; '.join(result.failures)}"
            print(f"| {row.NUMBER} | {row.PROMISE} | {row.FIGURE} | {result.measured} | {outcome} |", flush=True)
            # With fewer rounds it is not the figure, which the page is about.
            if options.rounds is None:
                report.record(row, result, options.seed, today)
                report.render(ROWS)
    print(f"\nSeed {options.seed}, {today}.")
    sys.exit(not kept)


def parse():
    parser = argparse.ArgumentParser(
        prog="scripts/promises", description="Holds petstore to its promises, by faults, and writes docs/promises.md."
    )
    by_number = {str(row.NUMBER): row for row in ROWS}
    every = ", ".join(by_number)
    parser.add_argument("rows", metavar="ROW", nargs="*", help=f"rows, in the order to run them (default: all: {every})")
    parser.add_argument("--rounds", type=int, help="of each row; then docs/promises.md is left as it is")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="of an earlier run, to repeat it")
    parser.add_argument("--dir", type=Path, default=ROOT / "target", help="where the stores lie (default: target)")
    parser.add_argument("--petstore", type=Path, metavar="FILE", help="a built petstore for the cluster's rows")
    parser.add_argument("--through-haproxy", action="store_true", help="petstore reaches the primary through HAProxy")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    parser.add_argument("--render", action="store_true", help="only write docs/promises.md from docs/promises.json")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(by_number):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds begins at 1")
    options.rows = [by_number[number] for number in options.rows or by_number]
    return options
