"""The goals, and whether the results meet them."""

from statistics import median
from typing import NamedTuple

RATIO_GOALS = (
    ("list20", "list 20 by status", 1.35),
    ("list100", "list 100", 1.6),
    ("get", "get", 1.30),
    ("create", "create, durable, 64 clients", 1.9),
    ("message", "message, durable, 64 clients", 1.9),
)

# Responses of petstore per second, relative to transactions of pgbench.
POSTGRES_GOALS = (
    ("list20", "list 20 by status", 0.8),
    ("get", "get", 0.8),
    ("create", "create, durable, 64 clients", 3),
)


class Goal(NamedTuple):
    what: str
    measured: float | None
    limit: float
    unit: str
    least: bool = False  # whether the limit is a minimum instead of a maximum

    @property
    def met(self):
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.least else self.measured <= self.limit

    def row(self):
        digits = 2 if self.unit == "×" else 0 if self.measured and self.measured >= 100 else 1
        shown = "not measured" if self.measured is None else f"{self.measured:.{digits}f}{self.unit}"
        said = {None: "", True: "met", False: "**not met**"}[self.met]
        return [self.what, f"{'≥' if self.least else '≤'} {self.limit:g}{self.unit}", shown, said]


def goals(found):
    """Returns all goals with the medians of the results. Goals that were not measured have no figure."""
    comparison, growth = found.get("comparison", {}), found.get("growth", {})
    operations, processes = comparison.get("operations", {}), comparison.get("processes", {})
    grow = "list 20 ({}) at 10 million animals against 1,000: CPU"
    mix = "list and get within the mix of 90 % reads and 10 % creates: CPU against the yardstick"
    disk = "create, durable, 1 client: wall time against one bare write + fdatasync of as many bytes"
    return [
        *(Goal(f"{what}: CPU against the yardstick", ratio(operations, name), most, "×")
          for name, what, most in RATIO_GOALS),
        Goal(disk, against_disk(comparison), 1.25, "×"),
        Goal(grow.format("page kept"), grown(growth, "list20"), 1.1, "×"),
        Goal(grow.format("no page kept"), grown(growth, "list20cold"), 1.1, "×"),
        Goal(mix, reads_in_mix(operations), 2.2, "×"),
        Goal("idle memory", own(processes, "idle_mb"), 40, " MB"),
        Goal("start to ready", own(processes, "start_ms"), 150, " ms"),
        *(Goal(f"on PostgreSQL, {what}: answers per second against pgbench", against_pgbench(found, name), least, "×",
               least=True)
          for name, what, least in POSTGRES_GOALS),
    ]


def cpu(operations, name, server):
    """Returns the median CPU time of an operation in µs per request, or None if it was not measured."""
    figures = operations.get(name, {}).get(server)
    return median(figure["cpu_us"] for figure in figures) if figures else None


def ratio(operations, name, server="petstore"):
    ours, theirs = cpu(operations, name, server), cpu(operations, name, "yardstick")
    return ours / theirs if ours and theirs else None


def read_in_mix(operations, server):
    """Returns the cost of a list or get in the mix: the mix without a tenth of the cost of a separate create.

    A create by itself shares its commit with more others than one in the mix does, and so costs less: what is left
    for the reads is, if anything, too much.
    """
    mix, create = cpu(operations, "mix", server), cpu(operations, "create", server)
    return (mix - 0.1 * create) / 0.9 if mix and create else None


def reads_in_mix(operations, server="petstore"):
    ours, theirs = read_in_mix(operations, server), read_in_mix(operations, "yardstick")
    return ours / theirs if ours and theirs else None


def against_disk(comparison):
    """Returns the median over the rounds of p50 of a create divided by p50 of the bare write just before."""
    figures = comparison.get("operations", {}).get("create1", {}).get("petstore")
    if not figures:
        return None
    syncs = comparison["bare_sync_us"]["create1"]
    return median(figure["p50_us"] / sync for figure, sync in zip(figures, syncs))


def grown(growth, name):
    sizes = growth.get("sizes", {}).get(name, {})
    if not {"1000", "10000000"} <= set(sizes):
        return None
    small, great = (median(figure["cpu_us"] for figure in sizes[size]["petstore"]) for size in ("1000", "10000000"))
    return great / small


def against_pgbench(found, name):
    figures = found.get("postgres", {}).get("operations", {}).get(name)
    if not figures:
        return None
    ours, theirs = (median(figure["rate"] for figure in figures[who]) for who in ("petstore", "pgbench"))
    return ours / theirs


def own(processes, name):
    seen = processes.get("petstore")
    return median(each[name] for each in seen) if seen else None
