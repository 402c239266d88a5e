"""What petstore promises when things fail, measured by making them fail: the rows of verification/promises.toml.

A row is measured by tests in Rust (`suite.py`), by a script with results of its own (`scripted.py`), or by a module here with
`run(row, trial)`, which returns a `Result`.
"""

import tomllib
from types import SimpleNamespace

from cluster.petstore import ROOT

OPTIONAL = {
    "note": None, "binary": "promises", "tests": (), "controls": (), "short": (), "at_once": False, "module": None, "script": None,
}
TABLE = tomllib.loads((ROOT / "verification/promises.toml").read_text())
ROWS = tuple(SimpleNamespace(**OPTIONAL | of, number=int(number)) for number, of in TABLE.items())
