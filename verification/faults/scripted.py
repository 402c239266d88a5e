"""Promises about the code itself, which other scripts measure. Their results are in files of their own."""

import json
import subprocess
from collections import Counter

from cluster.petstore import ROOT
from cluster.processes import Failed

from .trial import Result


def run(row, _trial):
    if subprocess.run([ROOT / row.script], check=False).returncode:
        raise Failed(f"{row.script} failed")
    found = recorded(row)
    return Result(found["measured"], found["failures"])


def recorded(row):
    """Returns the measurement as promises.json has those of other rows."""
    data = json.loads((ROOT / row.data).read_text())
    # The measurement, the violations, and whether the goal's quantity is not reached yet.
    measured, failures, is_partial = JUDGES[row.script](data)
    return {
        "measured": measured, "failures": failures, "is_partial": is_partial,
        "date": data["date"], "seed": data.get("seed"), "machine": data.get("machine"),
    }


def judge_mutants(data):
    outcomes = Counter(each["outcome"] for each in data["results"])
    missed = [each for each in data["results"] if each["outcome"] in ("missed", "survived")]
    caught = outcomes["caught"] + outcomes["timeout"]
    viable = caught + len(missed)
    score = 100 * caught // max(viable, 1)
    tested = viable + outcomes["unviable"]
    measured = (
        f"{score} % of {viable} mutants caught, {outcomes['timeout']} of them by a limit of time, with seed {data['seed']}; "
        f"{outcomes['unviable']} others do not compile; {tested} of {data['drawn']} drawn are tested"
    )
    measured += "".join(f"; {each['outcome']}: {each['mutant']}: {each.get('reason', 'unexplained')}" for each in missed)
    # Another than the nearest tests may notice those that are not explained.
    if tested < data["drawn"] or any(each["outcome"] == "survived" and "reason" not in each for each in missed):
        return measured, [], True
    failures = [f"no test catches: {each['mutant']}" for each in missed if "reason" not in each]
    return measured, failures + ([f"{score} % caught"] if score < 90 else []), False


def judge_fuzzing(data):
    parsers = data["parsers"]
    crashes, inputs = (sum(each[of] for each in parsers.values()) for of in ("crashes", "inputs"))
    seconds = min(each["seconds"] for each in parsers.values())
    measured = f"{crashes} crashes in {inputs} inputs, at least {seconds} s of CPU time for each of {len(parsers)} parsers"
    for name, of in parsers.items():
        covered, regions = of["regions"]
        measured += (
            f"; {name}: {of['inputs']} inputs in {of['seconds']} s, {100 * covered // regions} % of {regions} code regions reached, "
            f"corpus of {of['corpus']} inputs"
        )
    failures = [f"{name} crashed" for name, of in parsers.items() if of["crashes"]]
    return measured, failures, seconds < 3600 or len(parsers) < 9


JUDGES = {"scripts/mutants": judge_mutants, "scripts/fuzz": judge_fuzzing}
