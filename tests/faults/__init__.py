"""What petstore promises when things fail, measured by making them fail: a module per promise.

A row is a module with NUMBER, PROMISE, FIGURE, ROUNDS (how many make the full figure) and `run(trial)`, which returns
a `Result`. It is added by naming it in ROWS.
"""

from . import failover, no_standby

ROWS = (failover, no_standby)
