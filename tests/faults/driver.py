"""scripts/promises: runs rows, and says what came out."""

import argparse
import datetime
import secrets
import signal
import sys
from pathlib import Path

from cluster.petstore import ROOT
from cluster.processes import Failed

from . import ROWS
from .trial import Result, Trial


def main():
    options = parse()
    # So that a stop takes the cluster down, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {options.seed}, {datetime.date.today()}", file=sys.stderr)
    results = {}
    with Trial(options) as trial:
        for row in options.rows:
            trial.say(f"row {row.NUMBER}: {row.PROMISE}")
            try:
                results[row] = row.run(trial)
            except Failed as error:
                results[row] = Result("did not come to its end", [str(error)])
            for failure in results[row].failures:
                trial.failed = True
                trial.say(f"row {row.NUMBER} FAILED: {failure}")
    print("| # | promise | figure | measured | kept |\n| --- | --- | --- | --- | --- |")
    for row, result in results.items():
        kept = "yes" if result.kept else f"NO: {'; '.join(result.failures)}"
        print(f"| {row.NUMBER} | {row.PROMISE} | {row.FIGURE} | {result.measured} | {kept} |")
    print(f"\nSeed {options.seed}, {datetime.date.today()}.")
    sys.exit(not all(result.kept for result in results.values()))


def parse():
    parser = argparse.ArgumentParser(prog="scripts/promises", description="Holds petstore to its promises, by faults.")
    numbers = [row.NUMBER for row in ROWS]
    every = ",".join(map(str, numbers))
    parser.add_argument("--only", default=every, help="rows, by comma (default: all: %(default)s)")
    parser.add_argument("--rounds", type=int, help="of each row (default: what its figure says)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="of an earlier run, to repeat it")
    parser.add_argument("--dir", type=Path, default=ROOT / "target", help="where the stores lie (default: target)")
    parser.add_argument("--petstore", type=Path, metavar="FILE", help="a built petstore (default: build a release)")
    parser.add_argument("--through-haproxy", action="store_true", help="petstore reaches the primary through HAProxy")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(map(str, numbers)):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds begins at 1")
    options.rows = [row for row in ROWS if str(row.NUMBER) in chosen]
    return options
