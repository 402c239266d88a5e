"""Writes the comparison of a crate into its folder: the figures, the table of its page, and the plot."""

import json
import subprocess
import time
from pathlib import Path

from . import ROOT, machine

BEGIN, END = "<!-- comparison -->\n", "<!-- end of the comparison -->"
# From this share of CPU time that other programs use before the comparison, its page says so.
BUSY = 0.1


def begin():
    """Returns the first of the figures."""
    return {"date": machine.today(), "others": round(used_by_others(), 2)}


def used_by_others():
    """Returns the share of the machine's CPU time that is used while this program waits."""
    times = []
    for _ in range(2):
        time.sleep(2)
        user, nice, system, idle, wait, *_ = map(int, Path("/proc/stat").read_text().split()[1:8])
        times.append((user + nice + system, idle + wait))
    used, idle = (after - before for before, after in zip(*times))
    return used / (used + idle)


def write(name, found, table, plot):
    """`table` is a list of rows, the head first. `plot` is an SVG document."""
    folder = ROOT / "crates" / name
    (folder / "comparison.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "comparison.svg").write_text(plot)
    busy = " on a busy machine, to be repeated" if found.get("others", 0) > BUSY else ""
    caption = f"Measured on {found['date']}{busy}:\n"
    head, *rows = (f"| {' | '.join(row)} |".replace("|  |", "| |") for row in table)
    text = "\n".join([caption, head, "|---" * len(table[0]) + "|", *rows, ""])
    page = folder / "README.md"
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + BEGIN + text + END + rest.partition(END)[2])


def versions(package, names):
    """Returns the versions of a package's dependencies."""
    command = ["cargo", "tree", "--locked", "--manifest-path", ROOT / package / "Cargo.toml", "--depth", "1"]
    command += ["--prefix", "none", "--format", "{p}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = dict(line.split(" ")[:2] for line in output.splitlines())
    return {name: found[name].removeprefix("v") for name in names}
