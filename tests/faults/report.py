"""docs/promises.md, made of docs/promises.json: what was measured of each row, when it last ran in full."""

import json
import os
import platform
import re
from pathlib import Path

from cluster.petstore import ROOT

DATA = ROOT / "docs" / "promises.json"
PAGE = ROOT / "docs" / "promises.md"

TOP = """\
# Promises

What petstore promises when things fail, and what came of breaking them on purpose. `scripts/promises [ROW...]` runs
these tests in full and writes this page from [promises.json](promises.json); rows that a run leaves out keep what was
measured of them before. Those of `tests/promises` also run with every `scripts/test`, in a short form of seconds. A
seed repeats the choices of a run: `scripts/promises 1 --seed SEED`.

"""

CONTROLS = """
## How each test is shown to be able to fail

A test that can't fail proves nothing. Each has a control, which runs with it: a fault that the service can't make up
for, of which the test must notice the damage.

"""


def record(row, result, seed, today):
    """Notes what a full run has measured, and makes the page anew."""
    measurements = json.loads(DATA.read_text()) if DATA.exists() else {}
    measurements[str(row.NUMBER)] = {
        "measured": result.measured,
        "failures": result.failures,
        "date": str(today),
        "seed": seed,
        "machine": machine(),
    }
    in_order = dict(sorted(measurements.items(), key=lambda entry: int(entry[0])))
    DATA.write_text(json.dumps(in_order, indent=1, ensure_ascii=False) + "\n")


def render(rows):
    """Writes the page."""
    measurements = json.loads(DATA.read_text()) if DATA.exists() else {}
    lines = ["| # | promise | test | figure to reach | measured | kept | date | seed |", "| --- " * 8 + "|"]
    machines = {}
    for row in rows:
        found = measurements.get(str(row.NUMBER))
        cells = [row.NUMBER, row.PROMISE, where(row), row.FIGURE, *outcome(found)]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        if found:
            machines.setdefault(found["machine"], []).append(str(row.NUMBER))
    lines.append("")
    for described, numbers in machines.items():
        whose = "All rows" if len(machines) == 1 else f"Rows {', '.join(numbers)}"
        lines.append(f"{whose}: {described}.\n")
    controls = ["| # | control |", "| --- | --- |", *(f"| {row.NUMBER} | {row.CONTROL} |" for row in rows)]
    text = TOP + "\n".join(lines) + CONTROLS + "\n".join(controls) + "\n"
    PAGE.write_text(text)


def where(row):
    """The file or the test that a row is."""
    return getattr(row, "test", None) or f"`tests/faults/{Path(row.__file__).name}`"


def outcome(found):
    if not found:
        return "not yet", "", "", ""
    kept = "yes" if not found["failures"] else f"**NO**: {'; '.join(found['failures'])}"
    return found["measured"], kept, found["date"], found["seed"]


def machine():
    """The machine in a line."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    total = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    virtual = " (virtual)" if re.search(r"^flags.*\bhypervisor\b", info, re.MULTILINE) else ""
    return (
        f"{model[1] if model else platform.machine()}{virtual}, {os.cpu_count()} cores, "
        f"{int(total[1]) * 1024 / 1e9:.0f} GB, {platform.system()} {platform.release()}"
    )
