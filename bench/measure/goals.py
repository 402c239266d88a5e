"""The goals, and whether the results meet them."""

from statistics import median
from typing import NamedTuple

# CPU time of petstore relative to the yardstick.
RATIO_GOALS = (
    ("get", "get by random id", 1.15),
    ("list20", "list 20 by status, page kept", 1.10),
    ("list20busy", "list 20 during 1,000 creates a second", 1.25),
    ("list20cold", "list 20, no page kept", 1.6),
    ("create", "create, durable, 64 clients", 1.5),
    ("message", "message, durable, 64 clients", 1.5),
    ("mix", "mix of 90 % reads and 10 % creates", 1.3),
)

READ_GOALS = (("list20", "list 20 by status"), ("get", "get by random id"))

# CPU time relative to a create by the same process.
ORDER_GOALS = (
    ("order", "place an order, neighbouring animals", 1.2),
    ("orderfar", "place an order, animals far apart among a million", 2),
)

# Responses of petstore per second, relative to transactions of pgbench.
POSTGRES_GOALS = (
    ("list20cold", "lists of distinct pages", 1.2),
    ("get", "get by random id", 1.5),
    ("create", "create, durable, 64 clients", 4),
    ("message", "message, durable, 64 clients", 4),
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
    comparison, growth, variants = (found.get(name, {}) for name in ("comparison", "growth", "variants"))
    operations, processes = comparison.get("operations", {}), comparison.get("processes", {})
    tls, cores, orders = (variants.get(name, {}) for name in ("tls", "cores", "orders"))
    disk = "create, durable, 1 client: p50 against a bare write + fdatasync of as many bytes plus the yardstick's p50"
    return [
        *(Goal(f"{what}: CPU against the yardstick", ratio(operations, name), most, "×")
          for name, what, most in RATIO_GOALS),
        Goal(disk, against_disk(comparison), 1.1, "×"),
        Goal("list 20, no page kept, at 10 million animals against 1,000: CPU", grown(growth, "list20cold"), 1.3, "×"),
        *(Goal(f"{what}: CPU against a create", ratio(orders, name, "order", "create"), most, "×")
          for name, what, most in ORDER_GOALS),
        *(Goal(f"{what}: CPU on two cores against one", ratio(cores, name, "two cores", "one core"), 1.15, "×")
          for name, what in READ_GOALS),
        *(Goal(f"{what}, TLS: CPU against the yardstick with TLS", ratio(tls, name), 1.3, "×")
          for name, what in READ_GOALS),
        Goal("start to ready", own(processes, "start_ms"), 150, " ms"),
        Goal("start to ready with 10 million animals, page cache emptied", cold_start(growth), 150, " ms"),
        Goal("idle memory", own(processes, "idle_mb"), 40, " MB"),
        Goal("memory after a minute of the mix", loaded(variants), 64, " MB"),
        *(Goal(f"on PostgreSQL, {what}: answers per second against pgbench", against_pgbench(found, name), least, "×",
               least=True)
          for name, what, least in POSTGRES_GOALS),
    ]


def cpu(operations, name, server):
    """Returns the median CPU time of an operation in µs per request, or None if it was not measured."""
    figures = operations.get(name, {}).get(server)
    return median(figure["cpu_us"] for figure in figures) if figures else None


def ratio(operations, name, ours="petstore", theirs="yardstick"):
    ours, theirs = cpu(operations, name, ours), cpu(operations, name, theirs)
    return ours / theirs if ours and theirs else None


def against_disk(comparison):
    """Returns the median over the rounds of p50 of a create divided by the time that it cannot avoid: p50 of the bare
    write just before, and p50 of the yardstick's response."""
    figures = comparison.get("operations", {}).get("create1", {})
    if not {"petstore", "yardstick"} <= set(figures):
        return None
    rounds = zip(figures["petstore"], figures["yardstick"], comparison["bare_sync_us"]["create1"])
    return median(ours["p50_us"] / (sync + theirs["p50_us"]) for ours, theirs, sync in rounds)


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


def cold_start(growth):
    """Returns the median start in ms, or None if the database was small or in memory."""
    cold = growth.get("cold", {})
    measured = cold.get("animals") == 10_000_000 and cold["page_cache_emptied"]
    return median(cold["start_ms"]) if measured else None


def loaded(variants):
    """Returns the memory in MB, or None if the load was shorter than a minute."""
    load = variants.get("loaded", {})
    return load["mb"] if load.get("seconds", 0) >= 60 else None
