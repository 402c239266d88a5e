"""The goals, and whether the results meet them."""

from statistics import median
from typing import NamedTuple

# Every goal is for the released program.

# CPU time of petstore relative to the yardstick.
RATIO_GOALS = (
    ("get", "get by random id", 1.15),
    ("list20", "list 20 by status, page kept", 1.10),
    ("list20busy", "list 20 during 1,000 creates a second", 1.2),
    ("list20cold", "list 20, no page kept", 1.6),
    ("create", "create, durable, 64 clients", 1.6),
    ("message", "message, durable, 64 clients", 1.6),
    ("mix", "mix of 90 % reads and 10 % creates", 1.35),
)

# CPU time relative to a create by the same process.
ORDER_GOALS = (
    ("order", "place an order, neighbouring animals", 1.2),
    ("orderfar", "place an order, animals far apart among a million", 2.5),
)

# CPU time on two cores relative to one, and with TLS relative to the yardstick with TLS.
CORES_GOALS = (("list20", "list 20 by status", 1.15), ("get", "get by random id", 1.15))
TLS_GOALS = (("list20", "list 20 by status", 1.2), ("get", "get by random id", 1.25))

# Responses of petstore per second, relative to transactions of pgbench.
POSTGRES_GOALS = (
    ("list20cold", "lists of distinct pages", 1.05),
    ("get", "get by random id", 1.4),
    ("create", "create, durable, 64 clients", 3.2),
    ("message", "message, durable, 64 clients", 3.2),
)


class Goal(NamedTuple):
    what: str
    measured: float | None
    limit: float
    unit: str
    plain: float | None = None  # measured with `cargo build --release`
    least: bool = False  # whether the limit is a minimum instead of a maximum

    @property
    def met(self):
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.least else self.measured <= self.limit

    def row(self):
        digits = 2 if self.unit == "×" else 0 if self.measured and self.measured >= 100 else 1
        while self.met is False and round(self.measured, digits) == self.limit:
            digits += 1
        plain = "" if self.plain is None else f"{self.plain:.{digits}f}"
        shown = "not measured" if self.measured is None else f"{self.measured:.{digits}f}{self.unit}"
        said = {None: "", True: "met", False: "**not met**"}[self.met]
        return [self.what, f"{'≥' if self.least else '≤'} {self.limit:g}{self.unit}", shown, said, plain]


def goals(found):
    """Returns all goals with the medians of the results. Goals that were not measured have no figure."""
    comparison, growth, variants = (found.get(name, {}) for name in ("comparison", "growth", "variants"))
    operations, processes = comparison.get("operations", {}), comparison.get("processes", {})
    tls, cores, orders = (variants.get(name, {}) for name in ("tls", "cores", "orders"))
    disk = "create, durable, 1 client: p50 against a bare write + fdatasync of as many bytes plus the yardstick's p50"
    peers = "create, durable, 1 client: p50 against the faster of axum and Fastify"
    return [
        *(Goal(f"{what}: CPU against the yardstick", ratio(operations, name), most, "×",
               ratio(operations, name, "plain"))
          for name, what, most in RATIO_GOALS),
        Goal(peers, against_peers(operations), 0.95, "×", against_peers(operations, "plain")),
        Goal(disk, against_disk(comparison), 1.1, "×", against_disk(comparison, "plain")),
        Goal("list 20, no page kept, at 10 million animals against 1,000: CPU", grown(growth, "list20cold"), 1.3, "×"),
        *(Goal(f"{what}: CPU against a create", ratio(orders, name, "order", "create"), most, "×")
          for name, what, most in ORDER_GOALS),
        *(Goal(f"{what}: CPU on two cores against one", ratio(cores, name, "two cores", "one core"), most, "×")
          for name, what, most in CORES_GOALS),
        *(Goal(f"{what}, TLS: CPU against the yardstick with TLS", ratio(tls, name), most, "×")
          for name, what, most in TLS_GOALS),
        Goal("start to ready", own(processes, "start_ms"), 20, " ms", own(processes, "start_ms", "plain")),
        Goal("start to ready with 10 million animals, page cache emptied", cold_start(growth), 150, " ms"),
        Goal("idle memory", own(processes, "idle_mb"), 16, " MB", own(processes, "idle_mb", "plain")),
        Goal("memory after any of these loads", most_memory(found), 48, " MB", most_memory(found, "plain")),
        *(Goal(f"on PostgreSQL, {what}: responses per second against pgbench", against_pgbench(found, name), least, "×",
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


def against_disk(comparison, ours="petstore"):
    """Returns the median over the rounds of p50 of a create divided by the time that it cannot avoid: p50 of the bare
    write just before, and p50 of the yardstick's response."""
    figures = comparison.get("operations", {}).get("create1", {})
    if not {ours, "yardstick"} <= set(figures):
        return None
    rounds = zip(figures[ours], figures["yardstick"], comparison["bare_sync_us"]["create1"])
    return median(own["p50_us"] / (sync + yardstick["p50_us"]) for own, yardstick, sync in rounds)


def against_peers(operations, ours="petstore"):
    """Returns the median over the rounds of p50 of a create divided by that of the faster peer."""
    figures = operations.get("create1", {})
    if not {ours, "axum", "fastify"} <= set(figures):
        return None
    rounds = zip(figures[ours], figures["axum"], figures["fastify"])
    return median(own["p50_us"] / min(axum["p50_us"], fastify["p50_us"]) for own, axum, fastify in rounds)


def most_memory(found, ours="petstore"):
    """Returns the resident memory after the load that leaves most, as a median over the rounds."""
    comparison, variants = found.get("comparison", {}), found.get("variants", {})
    loads = [servers.get(ours, []) for servers in comparison.get("operations", {}).values()]
    if ours == "petstore":
        loads += [variants.get("tls", {}).get(name, {}).get(ours, []) for name in ("list20", "get")]
        loads += [figures for kind in ("cores", "orders") for each in variants.get(kind, {}).values()
                  for figures in each.values()]
        loads += [[variants["loaded"]]] if "loaded" in variants else []
    measured = [[figure["memory_mb"] for figure in figures if "memory_mb" in figure] for figures in loads]
    return max((median(each) for each in measured if each), default=None)


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


def own(processes, name, ours="petstore"):
    seen = processes.get(ours)
    return median(each[name] for each in seen) if seen else None


def cold_start(growth):
    """Returns the median start in ms, or None if the database was small or in memory."""
    cold = growth.get("cold", {})
    measured = cold.get("animals") == 10_000_000 and cold["page_cache_emptied"]
    return median(cold["start_ms"]) if measured else None

