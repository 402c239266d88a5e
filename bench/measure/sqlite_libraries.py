"""Compares sqlite-group-commit with other libraries: durable inserts, reads meanwhile, and what a kill or a power loss takes."""

import contextlib
import json
import sqlite3
import statistics
import subprocess
import tempfile
from pathlib import Path

from . import ROOT, TOOLS, Failed, crate, install, machine, plots

CRATE = "sqlite-group-commit"
# Package of each library in bench/sqlite.
LIBRARIES = {
    "sqlite-group-commit": "group-commit", "rusqlite": "group-commit", "deadpool-sqlite": "rusqlite",
    "tokio-rusqlite": "rusqlite", "sqlx": "sqlx", "tinystore": "rusqlite",
}
COLOURS = dict(zip(LIBRARIES, "afdebc"))
ROUNDS, SECONDS = 5, 3
TASKS = (1, 8, 64, 512)
# Tasks that write while others read.
BESIDE = 64
KILLS, KILLED_AT = 20, 1_000
IMAGES = 200
# Compile options of SQLite for speed, from tinystore's page and .cargo/config.toml, for all libraries.
FLAGS = (
    "-DHAVE_FDATASYNC=1 -DSQLITE_DEFAULT_MEMSTATUS=0 -USQLITE_THREADSAFE -DSQLITE_THREADSAFE=2 "
    "-USQLITE_ENABLE_MEMORY_MANAGEMENT"
)


def compare(options):
    """Measures everything, and writes it to the page of the crate."""
    found = crate.begin()
    install.tools(["cargo", "strace"])
    programs = {package: built(package) for package in dict.fromkeys(LIBRARIES.values())}
    rounds = 2 if options.quick else ROUNDS
    found |= {"machine": machine.described(ROOT / "target", pinned=False), "versions": versions(), "rounds": rounds}
    found |= {"inserts": {}, "reads": {}}
    for number in range(1, rounds + 1):
        install.say(f"round {number} of {rounds} (inserts a second, p99 ms)")
        for tasks, reads in [*((tasks, False) for tasks in TASKS), (BESIDE, True)]:
            for library, package in LIBRARIES.items():
                figures = measure(programs[package], library, tasks, reads)
                part = found["reads"] if reads else found["inserts"].setdefault(str(tasks), {})
                part.setdefault(library, []).append(figures)
                install.say(f"  {tasks:4}{' +reads' if reads else '':8}{library:20}{figures}")
    found["kill"] = {library: killed(programs[package], library, 2 if options.quick else KILLS)
                     for library, package in LIBRARIES.items()}
    found["power"] = {library: without_power(programs[package], library, 20 if options.quick else IMAGES)
                      for library, package in LIBRARIES.items()}
    lost = [library for library in LIBRARIES if found["kill"][library]["lost"] or found["power"][library]["lost"]]
    if lost:
        raise Failed(f"{', '.join(lost)} lost rows, which the page does not say: {found['kill']} {found['power']}")
    if not options.quick:
        crate.write(CRATE, found, table(found), plot(found))


def built(package):
    manifest = f"bench/sqlite/{package}/Cargo.toml"
    arguments = ["--manifest-path", manifest, "--target-dir", TOOLS / "sqlite"]
    return install.build(f"sqlite-load-{package}", *arguments, LIBSQLITE3_FLAGS=FLAGS)


def versions():
    found = {}
    for package in dict.fromkeys(LIBRARIES.values()):
        named = [library for library, of in LIBRARIES.items() if of == package]
        found |= crate.versions(f"bench/sqlite/{package}", named)
    return found


def folder():
    """Provides a folder for a database, on the disk of the checkout."""
    return tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "target")


def measure(program, library, tasks, reads):
    with folder() as data:
        command = [program, library, data, str(tasks), str(SECONDS), *(["reads"] if reads else [])]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        figures = json.loads(output)
        if len(names(data)) != figures["rows"]:
            raise Failed(f"{library} has another number of rows than it has added")
    return {
        "per_second": round(figures["inserts"]["number"] / figures["seconds"]), "p99_ms": figures["inserts"]["p99_ms"],
    } | ({"read_p99_ms": figures["reads"]["p99_ms"]} if reads else {})


def names(data):
    """Returns the names in the only database in a folder or below it."""
    file, = Path(data).rglob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return {name for name, in connection.execute("SELECT name FROM guests")}


def killed(program, library, times):
    """Kills the program, and returns how many names it has acknowledged, and how many of them are missing."""
    acknowledged = lost = 0
    for _ in range(times):
        with folder() as data:
            command = [program, library, data, str(BESIDE)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                printed = [process.stdout.readline() for _ in range(KILLED_AT)]
                process.kill()
                printed = {line.strip() for line in [*printed, *process.stdout] if line.endswith("\n")}
            acknowledged += len(printed)
            lost += len(printed - names(data))
    return {"kills": times, "acknowledged": acknowledged, "lost": lost}


def without_power(program, library, images):
    """Cuts the power of a simulated disk. Fails if the simulation would not notice missing syncs."""
    command = ["cargo", "run", "--quiet", "--locked", "--package", "petstore-verification", "--example", "power_loss"]
    command += ["--", str(images), program, library]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(output.splitlines()[-1])
    if figures["harmed_without_syncs"] == 0:
        raise Failed(f"{library} lost nothing without syncs, so the simulation shows nothing")
    return figures


def table(found):
    """Returns a row per library: the rate and p99 of inserts, and the p99 of reads."""
    rows = [["tasks", *map(str, TASKS), "reads"]]
    for library in LIBRARIES:
        inserts = [found["inserts"][str(tasks)][library] for tasks in TASKS]
        cells = [f"{middle(each, 'per_second'):,.0f}<br>{short(middle(each, 'p99_ms'))}" for each in inserts]
        rows.append([library, *cells, short(middle(found["reads"][library], "read_p99_ms"))])
    return rows


def plot(found):
    shown = {f"{tasks} task{'s' if int(tasks) > 1 else ''}": {library: [middle(each[library], "per_second")] for library in LIBRARIES}
             for tasks, each in found["inserts"].items()}
    title = "Durable inserts a second; the axis is logarithmic"
    return plots.bars(title, shown, LIBRARIES, colours=COLOURS)


def middle(figures, field):
    return statistics.median(figure[field] for figure in figures)


def short(milliseconds):
    """Returns a time with its unit, and two digits of it."""
    return f"{milliseconds * 1e3:.0f}&nbsp;µs" if milliseconds < 1 else f"{float(f'{milliseconds:.2g}'):,g}&nbsp;ms"
