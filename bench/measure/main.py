"""What the command line says, and what is left when it is done."""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from . import LOAD_CORE, ROOT, SERVER_CORE, Failed, comparison, growth, install, postgres, report
from .operations import OPERATIONS

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DESCRIPTION = """\
What a request costs petstore in CPU time, and what else there is to know of its speed, beside bare hyper sending
the same bytes (the yardstick) and beside two services that a user might write instead; on PostgreSQL, beside pgbench
sending the same statements. bench/README.md says how.
"""
EXAMPLES = """\
examples:
  scripts/bench                               the comparison, into docs/evidence/
  scripts/bench --growth                      the growth, into docs/evidence/
  scripts/bench --postgres                    petstore on PostgreSQL, into docs/evidence/
  scripts/bench --quick --only list20,get --only-servers petstore,yardstick
  scripts/bench --render                      docs/evidence/performance.md and its plots, from performance.json

A run that leaves anything out only prints its figures; --out says where to write them nevertheless.
Exits 1 when any answer was wrong.
"""


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names, servers = [operation.name for operation in OPERATIONS], comparison.SERVERS
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--growth", action="store_true", help="measure the growth instead of the comparison")
    what.add_argument("--postgres", action="store_true", help="measure petstore on PostgreSQL, beside pgbench")
    what.add_argument("--render", action="store_true", help="measure nothing")
    for flag, all_of_them, kind in (("--only", names, "operations"), ("--only-servers", servers, "servers")):
        parser.add_argument(
            flag, metavar="NAMES", default=",".join(all_of_them),
            help=f"{kind} of the comparison, by comma; default: {', '.join(all_of_them)}",
        )
    parser.add_argument("--rounds", metavar="N", type=int, help="default: 5, of the growth 3")
    parser.add_argument("--seconds", metavar="N", type=int, help="of each measurement; default: 3, 2 or 5")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 2 seconds, growth up to a million animals")
    parser.add_argument(
        "--dir", metavar="FOLDER", type=Path, default=ROOT / "target",
        help="where the stores lie, thus on which disk; default: target",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="where the figures, their document and plots go; default: docs/evidence"
    )
    parser.add_argument("--petstore", metavar="PROGRAM", type=Path, help="a petstore that is built already")
    options = parser.parse_args()

    options.part = part = growth if options.growth else postgres if options.postgres else comparison
    if options.rounds is None:
        options.rounds = 2 if options.quick else part.ROUNDS
    if options.seconds is None:
        options.seconds = 2 if options.quick else part.SECONDS
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds begin at 1")
    options.operations = [OPERATIONS[names.index(name)] for name in chosen(parser, options.only, names)]
    if options.postgres:
        names = postgres.OPERATIONS
        options.operations = [operation for operation in options.operations if operation.name in names]
        if not options.operations:
            parser.error(f"on PostgreSQL, --only takes {', '.join(names)}")
    options.servers = chosen(parser, options.only_servers, comparison.SERVERS)
    whole = len(options.operations) == len(names) and len(options.servers) == len(comparison.SERVERS)
    whole = (whole or options.growth) and options.rounds >= part.ROUNDS and not options.quick
    if options.out is None and (whole or options.render):
        options.out = ROOT / "docs/evidence"
    return options


def chosen(parser, text, names):
    asked = text.split(",")
    if unknown := set(asked) - set(names):
        parser.error(f"no such name: {', '.join(sorted(unknown))}")
    return [name for name in names if name in asked]


def stop_on_signal(number, _frame):
    # What cleans up on the way out must not be interrupted by a second Ctrl-C.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def measured(options):
    """One part of performance.json: its name and what was measured for it."""
    part, run = options.part, measured_on_postgres if options.postgres else measured_on_cores
    return part.__name__.rpartition(".")[2], run(options, part)


def measured_on_postgres(options, part):
    install.tools(["cargo", "wrk"])
    petstore = built(options)
    with folder_for(options, part) as folder:
        return part.measure_both(options, petstore, folder)


def measured_on_cores(options, part):
    """With a core for the server and one for the load."""
    rivals = [] if options.growth else [name for name in options.servers if name in ("fastify", "fastapi")]
    install.tools(["cargo", "wrk", "taskset", *(["node", "npm"] if "fastify" in rivals else [])])
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        raise Failed("two cores are needed, one for the server and one for the load")
    petstore = built(options)
    yardstick = install.build("yardstick", "--manifest-path", "bench/Cargo.toml")
    if not options.growth:
        install.oha()
    if rivals:
        install.rivals(rivals)

    # From here on, whatever this program does itself stays off the server's core.
    os.sched_setaffinity(0, {LOAD_CORE})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run = growth.grow if options.growth else comparison.compare
    with folder_for(options, part) as folder:
        return run(options, petstore, yardstick, folder)


def built(options):
    return options.petstore.resolve() if options.petstore else install.build("petstore")


@contextlib.contextmanager
def folder_for(options, part):
    """Where the stores lie, for as long as it takes."""
    install.say(f"this takes about {part.expected_minutes(options):.0f} minutes")
    options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir.resolve()) as folder:
        yield Path(folder)


def run():
    options = parse_arguments()
    for each in SIGNALS:
        signal.signal(each, stop_on_signal)
    figures = options.out / "performance.json" if options.out else None
    found = json.loads(figures.read_text()) if figures and figures.exists() else {}
    if options.render:
        if not found:
            raise Failed(f"{figures} is missing: nothing was measured yet")
    else:
        name, part = measured(options)
        report.show(name, part, found)
        found[name] = part
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        figures.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        report.write(found, options.out)
        install.say(f"written: {options.out / 'performance.md'}")


def main():
    try:
        run()
    except (Failed, subprocess.SubprocessError) as error:
        sys.exit(f"bench: {error}")
