"""docs/evidence/promises.md, rendered from promises.json beside it: the last full measurement of each row."""

import json
import os
import platform
import re
from collections import Counter
from pathlib import Path

from cluster.petstore import ROOT

DATA = ROOT / "docs" / "evidence" / "promises.json"
PAGE = ROOT / "docs" / "evidence" / "promises.md"

TOP = """\
# Promises

Of these {all} promises, {verdicts}. Each one is tested by causing the failure it is about, and
each test has a control: a fault that the service cannot survive, which the test must notice. Select a number for the goal,
the whole measurement and the control. A promise keeps its number; not every number is in use.

"""

DETAILS = """
## Run the tests

`scripts/promises 1 11` runs rows 1 and 11 in full and rewrites this page from [promises.json](promises.json). Rows that you
leave out keep their last measurement. `--seed SEED` repeats the choices of an earlier run. Every `scripts/test` also runs
the tests of `tests/promises` and `tests/simulation` in a short form.

## Details

"""

# A duration as Rust prints it.
DURATION = re.compile(r"\b(\d+\.\d{2,})(ms\b|µs|s\b)")
# Semicolons outside of parentheses separate the parts of a measurement.
PARTS = re.compile(r"; (?![^()]*\))")


def record(row, result, seed, today):
    """Records the measurement of a full run."""
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
    """Writes the page: one line per row, then the details of each."""
    measurements = json.loads(DATA.read_text()) if DATA.exists() else {}
    found = {row.NUMBER: measurements.get(str(row.NUMBER)) for row in rows}
    counts = Counter(verdict(each) for each in found.values())
    verdicts = ", ".join(f"{count} {'are' if count > 1 else 'is'} {of}" for of, count in counts.most_common())
    lines = ["| # | promise | verdict | figure |", "| --- | --- | --- | --- |"]
    for row in rows:
        cells = [f"[{row.NUMBER}](#row-{row.NUMBER})", row.PROMISE, verdict(found[row.NUMBER]), headline(row, found[row.NUMBER])]
        lines.append("| " + " | ".join(cells) + " |")
    details = "\n".join(detail(row, found[row.NUMBER]) for row in rows)
    PAGE.write_text(TOP.format(verdicts=verdicts, all=len(rows)) + "\n".join(lines) + "\n" + DETAILS + details)


def detail(row, found):
    """Returns the section of a row."""
    lines = [f"### Row {row.NUMBER}", "", f"**{row.PROMISE[0].upper()}{row.PROMISE[1:]}.**", "", f"- Goal: {row.FIGURE}."]
    if found:
        lines += [f"- **Failed**: {failure}" for failure in found["failures"]]
    lines += [f"- Control: {row.CONTROL}.", f"- Test: {where(row)}."]
    if note := getattr(row, "NOTE", None):
        lines.append(f"- Note: {note}")
    if found:
        lines += [f"- Measured on {found['date']}, seed {found['seed']}, {found['machine']}:", "", "```text"]
        lines += [*PARTS.split(readable(found["measured"])), "```"]
    lines.append("")
    return "\n".join(lines)


def headline(row, found):
    """Returns the row's figure, or the first part of the measurement if its wording has changed."""
    if not found:
        return ""
    pattern, form = row.HEADLINE
    match = re.search(pattern, found["measured"])
    return readable(form.format(*match.groups()) if match else PARTS.split(found["measured"])[0])


def readable(text):
    """Adds separators to long numbers and rounds durations to three digits."""
    text = DURATION.sub(lambda match: f"{float(match[1]):.3g} {match[2]}", text)
    return re.sub(r"(?<![\d.])\d{5,}(?!\.?\d)", lambda match: f"{int(match[0]):,}", text)


def where(row):
    """Returns the file or the tests of a row."""
    return getattr(row, "test", None) or f"`tests/faults/{Path(row.__file__).name}`"


def verdict(found):
    if not found:
        return "not measured"
    return "**failed**" if found["failures"] else "kept"


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
