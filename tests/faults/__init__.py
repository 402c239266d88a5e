"""What petstore promises when things fail, measured by making them fail.

A row has NUMBER, PROMISE, FIGURE, CONTROL (what shows that its test can fail), ROUNDS (how many make the full figure)
and `run(trial)`, which returns a `Result`. It is a module here, added by naming it in ROWS, or a line of the table in
`suite.py`, and then the full form of a test in `tests/promises`.
"""

from . import failover, no_standby, suite

ROWS = tuple(sorted((failover, no_standby, *suite.ROWS), key=lambda row: row.NUMBER))
