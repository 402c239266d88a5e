"""Promises about the code itself, which other scripts measure. Their results are in files of their own."""

import json
import subprocess
from collections import Counter
from typing import Callable, NamedTuple

from cluster.petstore import ROOT
from cluster.processes import Failed

from .trial import Result


class Script(NamedTuple):
    """One row: the script that measures it, and the function that words the script's results."""

    NUMBER: int
    PROMISE: str
    FAULT: str
    FIGURE: str
    CONTROL: str
    HEADLINE: tuple
    NOTE: str
    script: str
    data: str
    # Takes the results; returns the measurement, the violations, and whether the goal's quantity is not reached yet.
    judge: Callable
    # Tests in verification/tests/promises.
    SHORT: tuple = ()

    def run(self, _trial):
        if subprocess.run([ROOT / self.script], check=False).returncode:
            raise Failed(f"{self.script} failed")
        found = self.recorded()
        return Result(found["measured"], found["failures"])

    def recorded(self):
        """Returns the measurement as promises.json has those of other rows, or `None`."""
        file = ROOT / self.data
        if not file.exists():
            return None
        data = json.loads(file.read_text())
        measured, failures, is_partial = self.judge(data)
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


ROWS = (
    Script(
        NUMBER=46,
        PROMISE="a test fails if the code is wrong",
        FAULT="mutants: small changes of the code, drawn at random",
        FIGURE="at least 90 % of the viable ones of 300 mutants caught, and a reason for each other one",
        CONTROL="the tests pass without a mutant",
        HEADLINE=(r"(\d+ % of \d+) mutants .* with seed (\S+); .*?(\d+ of \d+) drawn", "{0} mutants caught (seed {1}; {2} tested)"),
        NOTE="docs/evidence/mutants.json has the result of each mutant.",
        script="scripts/mutants",
        data="docs/evidence/mutants.json",
        judge=judge_mutants,
    ),
    Script(
        NUMBER=47,
        PROMISE="no input crashes a parser, or makes it hang",
        FAULT="inputs that a search finds by the code that they reach",
        FIGURE="a CPU hour for each of 9 parsers: 0 crashes, 0 inputs that take 5 seconds",
        CONTROL="the search finds a bug that random inputs do not reach",
        HEADLINE=(r"(\d+) crashes in (\d+) inputs, at least (\d+) s", "{0} crashes in {1} inputs, {2} s of CPU time per parser"),
        NOTE="the regions are those of petstore's functions that an input enters. `corpus_crashes_no_parser` in verification/tests/promises "
        "repeats the inputs of verification/fuzz/corpus, which reach all of them.",
        script="scripts/fuzz",
        data="docs/evidence/fuzz.json",
        judge=judge_fuzzing,
        SHORT=("parsers::tests::corpus_crashes_no_parser", "parsers::tests::crashing_parser_is_detected"),
    ),
)
