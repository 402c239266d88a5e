"""What petstore promises when things fail, measured by making them fail.

A row has NUMBER, PROMISE, FAULT (what the test does to break it), FIGURE (its goal), CONTROL (the fault that shows that its
test can fail), HEADLINE (a pattern that finds the row's figure in its measurement, and a format for it), ROUNDS (for a full
run), perhaps a NOTE, and `run(trial)`, which returns a `Result`. A row is a module named in ROWS below, or an entry of the
table in `suite.py` (the full form of a test in `verification/tests`) or in `scripted.py` (a script with results of its own). The
tests of an entry of `suite.py` are also its short form; other rows name theirs in SHORT.
"""

from . import failover, isolated, no_standby, scripted, suite

ROWS = tuple(sorted((failover, isolated, no_standby, *scripted.ROWS, *suite.ROWS), key=lambda row: row.NUMBER))
