"""Renders docs/evidence/promises.md and the files in promises/ from promises.json: the last full measurement of each row."""

import json
import os
import platform
import re
import textwrap
from collections import Counter
from pathlib import Path

from cluster.petstore import ROOT

from . import scripted
from .suite import folder

DATA = ROOT / "docs" / "evidence" / "promises.json"
PAGE = ROOT / "docs" / "evidence" / "promises.md"
DETAILS = ROOT / "docs" / "evidence" / "promises"

TOP = """\
# Promises

Of {all} promises, {verdicts}. The measurements are of {first} to {last}.

Each test causes the failure that its promise is about. Its control is a fault that breaks the promise, and the test must
notice it. Select a number for the goal, the control, the names of the tests, and the whole measurement with its date, seed
and machine. Not every number is in use.

"""

# Each row can be linked to as #row-NUMBER.
LINE = '| <a id="row-{number}"></a>[{number}](promises/{file}) | {promise} | {fault} | {figure} |'

BOTTOM = """
## Run the tests

`scripts/verify 1 11` tests promises 1 and 11 in full, time included, on an idle machine, and rewrites these results from
[promises.json](promises.json). `--seed SEED` repeats the choices of an earlier run. Every change must pass `scripts/verify
--short`, which tests all promises in a few minutes, on any machine: outcome, order, completeness and loss, never time.
"""

WIDTH = 120  # columns of the files with the details

# A duration as Rust prints it.
DURATION = re.compile(r"\b(\d+\.\d{2,})(ms\b|µs|s\b)")
# Semicolons outside of parentheses separate the parts of a measurement.
PARTS = re.compile(r"; (?![^()]*\))")


def record(row, result, seed, today):
    """Records the measurement of a full run."""
    if row.script:
        return
    measurements = json.loads(DATA.read_text()) if DATA.exists() else {}
    measurements[str(row.number)] = {
        "measured": result.measured,
        "failures": result.failures,
        "date": str(today),
        "seed": seed,
        "machine": machine(),
    }
    in_order = dict(sorted(measurements.items(), key=lambda entry: int(entry[0])))
    DATA.write_text(json.dumps(in_order, indent=1, ensure_ascii=False) + "\n")


def render(rows):
    """Writes the page, which has one line per row, and a file with the details of each row."""
    measurements = json.loads(DATA.read_text()) if DATA.exists() else {}
    found = {row.number: recorded(row, measurements) for row in rows}
    counts = Counter(verdict(each) for each in found.values())
    verdicts = ", ".join(f"{count} {'are' if count > 1 else 'is'} {of}" for of, count in counts.most_common())
    lines = ["| # | promise | the test | result |", "| --- | --- | --- | --- |"]
    lines += [line(row, found[row.number]) for row in rows]
    dates = sorted(each["date"] for each in found.values() if each)
    top = TOP.format(all=len(rows), verdicts=verdicts, first=dates[0], last=dates[-1])
    PAGE.write_text(top + "\n".join(lines) + "\n" + BOTTOM)
    DETAILS.mkdir(exist_ok=True)
    for old in DETAILS.glob("*.txt"):
        old.unlink()
    for row in rows:
        (DETAILS / file(row)).write_text(detail(row, found[row.number]))


def recorded(row, measurements):
    return scripted.recorded(row) if row.script else measurements.get(str(row.number))


def line(row, found):
    """Returns the row's line of the table."""
    is_kept = verdict(found) == "kept"
    parts = [headline(row, found)] if is_kept else [verdict(found), headline(row, found)]
    return LINE.format(
        number=row.number, file=file(row), promise=row.promise, fault=row.fault, figure=": ".join(filter(None, parts))
    )


def file(row):
    return f"{row.number:02}.txt"


def detail(row, found):
    """Returns the details of a row as plain text."""
    parts = [f"Promise {row.number}: {row.promise}", f"Result: {verdict(found).strip('*')}"]
    parts += [f"Failed: {failure}" for failure in found["failures"]] if found else []
    parts += [f"Goal: {row.goal}.", f"Control: {row.control}."]
    if row.note:
        parts.append(f"Note: {row.note}")
    parts += [f"Test: {test}" for test in where(row)]
    if found:
        seed = f"seed {found['seed']}" if found["seed"] else None
        parts.append(f"Measured on {', '.join(filter(None, [found['date'], seed, found['machine']]))}:")
    parts = [wrapped(part) for part in parts]
    if found:
        parts.append("\n".join(wrapped(line) for line in PARTS.split(readable(found["measured"]))))
    return "\n\n".join(parts) + "\n"


def wrapped(text):
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def headline(row, found):
    """Returns the row's figure, or the first part of the measurement if its wording has changed."""
    if not found:
        return ""
    pattern, form = row.headline
    match = re.search(pattern, found["measured"])
    return readable(form.format(*match.groups()) if match else PARTS.split(found["measured"])[0])


def readable(text):
    """Adds separators to long numbers and rounds durations to three digits."""
    text = DURATION.sub(lambda match: f"{float(match[1]):.3g} {match[2]}", text)
    return re.sub(r"(?<![\d.])\d{5,}(?!\.?\d)", lambda match: f"{int(match[0]):,}", text)


def where(row):
    """Returns the tests of a row, or its file."""
    if row.tests:
        return [f"{name} in {folder(row.binary)}" for name in row.tests]
    return [row.script or f"verification/faults/{row.module}.py"]


def verdict(found):
    if not found:
        return "not measured"
    if found["failures"]:
        return "**failed**"
    return "measured in part" if found.get("is_partial") else "kept"


def machine():
    """Describes this machine in one line."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    total = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    virtual = " (virtual)" if re.search(r"^flags.*\bhypervisor\b", info, re.MULTILINE) else ""
    return (
        f"{model[1] if model else platform.machine()}{virtual}, {os.cpu_count()} cores, "
        f"{int(total[1]) * 1024 / 1e9:.0f} GB, {platform.system()} {platform.release()}"
    )
