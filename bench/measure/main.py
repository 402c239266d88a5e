"""The command line of scripts/bench."""

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

from . import (
    LOAD_CORE,
    ROOT,
    SERVER_CORE,
    Failed,
    comparison,
    growth,
    http_servers,
    install,
    postgres,
    postgres_clients,
    profile,
    report,
    sqlite_libraries,
    training,
    variants,
)
from .operations import OPERATIONS

# Each compares a crate with others, and writes the page of the crate.
CRATES = (http_servers, sqlite_libraries, postgres_clients)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DESCRIPTION = """\
Measures CPU time, throughput and latency of petstore, compared with bare hyper sending the same bytes (the yardstick)
and with three implementations of the same API; on PostgreSQL, compared with pgbench. See bench/README.md.
"""
EXAMPLES = """\
examples:
  scripts/bench                               measure the comparison, and write it to docs/evidence/
  scripts/bench --variants                    measure TLS, two cores, orders and a minute of load, and write it there
  scripts/bench --growth                      measure the growth, and write it to docs/evidence/
  scripts/bench --postgres                    measure petstore on PostgreSQL, and write it to docs/evidence/
  scripts/bench --profile                     count instructions and system calls, and write them to docs/evidence/
  scripts/bench --http-servers                compare bounded-http with other HTTP servers
  scripts/bench --sqlite-libraries            compare sqlite-group-commit with other libraries
  scripts/bench --postgres-clients            compare postgres-group-commit with other clients of PostgreSQL
  scripts/bench --quick --only list20,get --only-servers petstore,yardstick
  scripts/bench --render                      render docs/evidence/performance.md from performance.json

A partial run only prints its results, unless --out is given. The exit status is 1 if any response was wrong.
"""


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names, servers = [operation.name for operation in OPERATIONS], comparison.SERVERS
    what = parser.add_mutually_exclusive_group()
    for part, what_it_does in (
        (variants, "measure TLS, two cores, orders and a minute of full load instead of the comparison"),
        (growth, "measure the growth"),
        (postgres, "measure petstore on PostgreSQL, compared with pgbench"),
        (profile, "count the instructions and system calls of a request"),
    ):
        what.add_argument(f"--{name_of(part)}", dest="part", action="store_const", const=part, help=what_it_does)
    what.add_argument(
        "--train", dest="part", action="store_const", const=training,
        help="run the load of the profile once, for a program that was built with -Cprofile-generate",
    )
    for part in CRATES:
        what.add_argument(
            f"--{name_of(part).replace('_', '-')}", dest="crate", action="store_const", const=part,
            help=f"compare {part.CRATE} with others, and write it to the page of the crate",
        )
    what.add_argument("--render", action="store_true", help="render the page from earlier results")
    for flag, all_of_them, kind in (("--only", names, "operations"), ("--only-servers", servers, "servers")):
        parser.add_argument(
            flag, metavar="NAMES", default=",".join(all_of_them),
            help=f"{kind} of the comparison, separated by commas (default: {', '.join(all_of_them)})",
        )
    parser.add_argument("--rounds", metavar="N", type=int, help="number of rounds (default: 5; growth: 3)")
    parser.add_argument(
        "--seconds", metavar="N", type=int,
        help=f"duration of each measurement (default: {comparison.SECONDS}; growth: {growth.SECONDS}; "
             f"PostgreSQL: {postgres.SECONDS})",
    )
    parser.add_argument("--quick", action="store_true", help="2 rounds of 2 seconds, growth to a million animals")
    parser.add_argument(
        "--dir", metavar="FOLDER", type=Path, default=ROOT / "target",
        help="folder of the databases, which selects the disk (default: target)",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path,
        help="folder of the results, the page and its plots (default: docs/evidence)",
    )
    parser.add_argument(
        "--petstore", metavar="PROGRAM", type=Path,
        help="petstore program (default: scripts/build-static; with --profile and --train: cargo build --release)",
    )
    parser.add_argument(
        "--plain", metavar="PROGRAM", type=Path,
        help="program of the server `plain` of the comparison (default: cargo build --release)",
    )
    options = parser.parse_args()

    options.part = part = options.part or comparison
    if options.crate:
        return options
    if part in (profile, training):
        if options.out is None and part is profile:
            options.out = ROOT / "docs/evidence"
        return options
    if options.rounds is None:
        options.rounds = 2 if options.quick else part.ROUNDS
    if options.seconds is None:
        options.seconds = 2 if options.quick else part.SECONDS
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds must be at least 1")
    options.operations = [OPERATIONS[names.index(name)] for name in chosen(parser, options.only, names)]
    if part is postgres:
        names = postgres.OPERATIONS
        options.operations = [operation for operation in options.operations if operation.name in names]
        if not options.operations:
            parser.error(f"with --postgres, --only accepts {', '.join(names)}")
    options.servers = chosen(parser, options.only_servers, comparison.SERVERS)
    whole = len(options.operations) == len(names) and len(options.servers) == len(comparison.SERVERS)
    whole = (whole or part in (variants, growth)) and options.rounds >= part.ROUNDS and not options.quick
    if options.out is None and (whole or options.render):
        options.out = ROOT / "docs/evidence"
    return options


def name_of(part):
    """Returns the name of a part in performance.json, which is the name of its module."""
    return part.__name__.rpartition(".")[2]


def chosen(parser, text, names):
    asked = text.split(",")
    if unknown := set(asked) - set(names):
        parser.error(f"unknown name: {', '.join(sorted(unknown))}")
    return [name for name in names if name in asked]


def stop_on_signal(number, _frame):
    # A second Ctrl-C must not interrupt the cleanup.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def measured(options):
    """Returns the name and results of one part of performance.json."""
    run = {profile: profiled, postgres: measured_on_postgres}.get(options.part, measured_on_cores)
    return name_of(options.part), run(options, options.part)


def profiled(options, part):
    install.tools(["cargo", "valgrind", "strace"])
    petstore, yardstick = built(options), built_yardstick()
    with folder_for(options, part) as folder:
        return part.profile(petstore, yardstick, folder)


def measured_on_postgres(options, part):
    install.tools(["cargo", "wrk"])
    petstore = built(options)
    with folder_for(options, part) as folder:
        return part.measure_both(options, petstore, folder)


def measured_on_cores(options, part):
    """Measures with one core for the server and one for the load."""
    rivals = [name for name in options.servers if name in comparison.RIVALS] if part is comparison else []
    further = ["node", "npm"] if "fastify" in rivals else ["openssl"] if part is variants else []
    install.tools(["cargo", "wrk", "taskset", *further])
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        raise Failed("this machine needs two cores, one for the server and one for the load")
    petstore, yardstick = built(options), built_yardstick()
    if part is comparison:
        if "plain" in options.servers:
            options.plain = options.plain.resolve() if options.plain else install.build("petstore")
        install.oha()
    if rivals:
        install.rivals(rivals)

    # Keeps this process off the server's core.
    os.sched_setaffinity(0, {LOAD_CORE})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run = {comparison: comparison.compare, variants: variants.vary, growth: growth.grow}[part]
    with folder_for(options, part) as folder:
        return run(options, petstore, yardstick, folder)


def built(options):
    if options.petstore:
        return options.petstore.resolve()
    # The released program has no symbols, by which the profile groups its instructions.
    return install.build("petstore") if options.part in (profile, training) else install.build_static()


def built_yardstick():
    return install.build("yardstick", "--manifest-path", "bench/Cargo.toml")


@contextlib.contextmanager
def folder_for(options, part):
    """Provides a temporary folder for the databases."""
    install.say(f"this takes about {part.expected_minutes(options):.0f} minutes")
    options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir.resolve()) as folder:
        yield Path(folder)


def run():
    options = parse_arguments()
    for each in SIGNALS:
        signal.signal(each, stop_on_signal)
    if options.crate:
        return options.crate.compare(options)
    figures = options.out / "performance.json" if options.out else None
    found = json.loads(figures.read_text()) if figures and figures.exists() else {}
    if options.part is training:
        with folder_for(options, training) as folder:
            training.train(built(options), folder)
        return
    if options.render:
        if not found:
            raise Failed(f"{figures} is missing: run a measurement first")
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


if __name__ == "__main__":
    main()
