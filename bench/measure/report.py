"""Renders results: tables on the terminal and in text files, a page (from a template) with a summary and plots."""

import re
import string
from statistics import median

from . import ROOT, plots
from .comparison import CHOICES
from .goals import against_pgbench, goals, ratio
from .operations import BY_NAME

TEMPLATE = ROOT / "bench/measure/page.template"
CONTENTS = {
    "comparison": "CPU, rates, latency, disk, memory and bytes of all servers",
    "variants": "TLS, two cores, orders, memory under load",
    "growth": "more animals, more connections, longer names, starts",
    "postgres": "rates, CPU and latency on PostgreSQL, its settings",
    "profile": "instructions, system calls and functions of a request",
}


def show(name, part, found):
    """Prints the results of a run, and the goals, which also use earlier results."""
    for title, rows in tables(name, part):
        print(f"\n{title}\n\n{table(rows)}")
    print(f"\nThe goals\n\n{goals_table({**found, name: part})}")


def write(found, folder):
    """Writes the page, its plots, and a file of tables for each part."""
    beside = folder / "performance"
    beside.mkdir(exist_ok=True)
    for name, svg in plots.pictures(found).items():
        (beside / f"{name}.svg").write_text(svg)
    for name, contents in CONTENTS.items():
        if name in found:
            (beside / f"{name}.txt").write_text(f"{contents}\n\n{section(name, found[name])}\n")
    every = goals(found)
    machine = found.get("comparison", {}).get("machine", {})
    values = {
        "machine": ", ".join(machine[what] for what in ("processor", "memory", "disk", "kernel") if what in machine),
        "cores": machine.get("cores", "?").split(",")[0],
        "met": sum(goal.met is True for goal in every), "all": len(every), "goals": goals_table(found),
        "rates": rates_table(found), "postgres": postgres_table(found), "parts": parts_table(found),
        **causes(found.get("profile", {}).get("operations", {})),
    }
    text = string.Template(TEMPLATE.read_text()).substitute(values)
    (folder / "performance.md").write_text(text)


def causes(profiled):
    """Returns the figures of the profile that explain goals."""
    def instructions(name):
        return f"{sum(profiled[name]['instructions'].values()):,}" if profiled else "?"

    def sqlite(name):
        if not profiled:
            return "?"
        groups = profiled[name]["instructions"]
        return f"{100 * (groups['SQLite'] + groups['rusqlite']) / sum(groups.values()):.0f} %"

    def calls(name, *kinds):
        if not profiled:
            return "?"
        made = profiled[name]["calls"]
        return f"{sum(made.get(kind, 0) for kind in kinds or made):.1f}"

    return {
        "sqlite_of_get": sqlite("get"), "sqlite_of_list": sqlite("list20cold"), "sqlite_of_order": sqlite("order64"),
        "instructions_of_order": instructions("order64"), "instructions_of_create": instructions("create64"),
        "calls_of_create": calls("create1"), "writes_of_create": calls("create1", "pwrite64"),
        "locks_of_create": calls("create1", "fcntl"),
        "writes_of_order": calls("order64", "pwrite64"), "writes_of_far_order": calls("orderfar64", "pwrite64"),
    }


def rates_table(found):
    part = found.get("comparison", {"operations": {}, "servers": []})
    servers = part["servers"]
    return table([["requests per second", *servers], *(
        [BY_NAME[name].what, *(f"{middle(figures[server], 'rate'):,.0f}" for server in servers)]
        for name, figures in part["operations"].items())])


def postgres_table(found):
    rows = [["", "requests per second", "pgbench", "CPU of petstore, µs", "of PostgreSQL", "of PostgreSQL under pgbench"]]
    for name, figures in found.get("postgres", {"operations": {}})["operations"].items():
        ours, theirs = figures["petstore"], figures["pgbench"]
        cpu = (middle(ours, "cpu_us"), middle(ours, "database_us"), middle(theirs, "database_us"))
        rates = (f"{middle(each, 'rate'):,.0f}" for each in (ours, theirs))
        rows.append([BY_NAME[name].what, *rates, *(f"{each:.1f}" for each in cpu)])
    return table(rows)


def parts_table(found):
    return table([["tables", "contents", "measured", "petstore"], *(
        [f"[{name}.txt](performance/{name}.txt)", contents, found[name]["date"], found[name]["versions"]["petstore"]]
        for name, contents in CONTENTS.items() if name in found)])


def section(name, part):
    measured = f"{part['rounds']} rounds, each measurement {part['seconds']} s. Figures are medians over the rounds, " \
               "with minimum and maximum in brackets." if "rounds" in part else \
               f"{part['requests']:,} requests of each kind, on {part['animals']:,} animals."
    rivals_rounds = part.get("rivals_rounds")
    if rivals_rounds and rivals_rounds < part["rounds"]:
        measured += f" Latency is measured, and the rivals take part, in {rivals_rounds} of the rounds only."
    pieces = [f"Measured on {part['date']}: {measured}", machine(part)]
    for title, rows in tables(name, part):
        pieces.append(f"### {title}\n\n{table(rows)}")
    return "\n\n".join(pieces)


def machine(part):
    rows = [*part["machine"].items(), *part["versions"].items()]
    for rival, (what, (one, other)) in CHOICES.items():
        if best := part.get(f"{rival.__name__} {what}"):
            rows.append((f"{what} of {rival.__name__}", f"{best}, the faster of {one} and {other} on one core"))
    return "\n".join(f"{name}: {value}" for name, value in rows)


def tables(name, part):
    of_part = {"comparison": comparison_tables, "variants": variants_tables, "growth": growth_tables,
               "postgres": postgres_tables, "profile": profile_tables}
    return list(of_part[name](part))


def comparison_tables(part):
    operations, servers = part["operations"], part["servers"]
    yield "Server CPU, user and system, in µs per request", cpu_rows(operations, servers)
    yield "Maximum requests per second with 64 clients, and the server's use of its core", [
        ["", *servers],
        *([BY_NAME[name].what, *(f"{spread(figures[s], 'rate', 0)}, {middle(figures[s], 'busy'):.0%}" for s in servers)]
          for name, figures in operations.items()),
    ]
    if rows := list(latency_rows(operations, servers)):
        yield "Latency in µs at half of the server's peak: p50 / p99 (at requests per second)", [["", *servers], *rows]
    if part["bare_sync_us"]:
        yield "Durable writes: p50 of the wall time in µs, and the bare disk", disk_rows(part)
    if disturbed := [name for name, figures in operations.items() if "creates" in figures[servers[0]][0]]:
        yield "Animals created per second by the other client", [
            ["", *servers],
            *([BY_NAME[name].what, *(spread(figures[s], "creates", 0) for s in servers)]
              for name, figures in operations.items() if name in disturbed),
        ]
    yield "Start and memory", [
        ["", *servers],
        *([what, *(spread(part["processes"][s], field, 1) for s in servers)]
          for field, what in (("start_ms", "exec to first correct response, ms"), ("idle_mb", "idle memory, MB"))),
    ]
    yield "Memory after each load, MB", [
        ["", *servers],
        *([BY_NAME[name].what, *(spread(figures[s], "memory_mb", 1) for s in servers)]
          for name, figures in operations.items() if "memory_mb" in figures[servers[0]][0]),
    ]
    yield "Bytes per response, including its head", [
        ["", *servers],
        *([BY_NAME[name].what, *(f"{middle(figures[s], 'bytes'):.0f}" for s in servers)]
          for name, figures in operations.items()),
    ]


def cpu_rows(operations, servers, base="yardstick"):
    def shown(operations, name, server):
        against = ratio(operations, name, server, base)
        figure = spread(operations[name][server], "cpu_us", 1)
        return f"{figure} {against:.2f}×" if against and server != base else figure

    yield ["", *servers]
    for name in operations:
        yield [BY_NAME[name].what, *(shown(operations, name, server) for server in servers)]


def latency_rows(operations, servers):
    for name, figures in operations.items():
        loads = next(iter(figures.values()))[0].get("open", {})
        for load in loads:
            cells = []
            for server in servers:
                seen = [figure["open"][load] for figure in figures[server] if "open" in figure]
                p50, p99, rate = (middle(seen, field) for field in ("p50_us", "p99_us", "rate"))
                cells.append(f"{p50:,.0f} / {p99:,.0f} ({rate:,.0f}){late(seen)}")
            within = f"{BY_NAME[load].what.split(',')[0]} in the mix" if len(loads) > 1 else BY_NAME[name].what
            yield [within, *cells]


def late(seen):
    """Returns a mark if fewer requests were sent than due, because the server or oha fell behind."""
    return " *" if middle(seen, "rate") < 0.97 * middle(seen, "asked") else ""


def disk_rows(part):
    yield ["", f"bare write of {part['commit_bytes']:,} bytes + fdatasync", *part["servers"]]
    for name, syncs in part["bare_sync_us"].items():
        figures = part["operations"][name]
        yield [BY_NAME[name].what, f"{median(syncs):.0f} ({min(syncs):.0f}–{max(syncs):.0f})",
               *(spread(figures[server], "p50_us", 0) for server in part["servers"])]


def variants_tables(part):
    for kind, ours, base, title in (
        ("tls", "petstore", "yardstick", "Over kept-alive TLS connections, in µs per request"),
        ("cores", "two cores", "one core", "petstore on two cores that it shares with the load, and on one of its own"),
        ("orders", "order", "create", f"Orders and creates on {part['order_animals']:,} animals"),
    ):
        yield f"CPU: {title}", list(cpu_rows(part[kind], (ours, base), base))
    loaded = part["loaded"]
    yield "Memory of petstore on two cores", [
        ["idle, MB", f"after {loaded['seconds']} s of the mix, MB", "requests per second meanwhile"],
        [f"{loaded['idle_mb']:.1f}", f"{loaded['mb']:.1f}", f"{loaded['rate']:,.0f}"],
    ]


def growth_tables(part):
    titles = {"sizes": "animals", "connections": "connections", "names": "characters of a name"}
    for kind, what in titles.items():
        labels = list(next(iter(part[kind].values())))
        heads = [f"{int(label):,}" if label.isdigit() else label for label in labels]
        rows = []
        for name, figures in part[kind].items():
            cells = []
            for label in labels:
                ours, theirs = (figures[label][server] for server in ("petstore", "yardstick"))
                times = middle(ours, "cpu_us") / middle(theirs, "cpu_us")
                cells.append(f"{spread(ours, 'cpu_us', 1)} {times:.2f}×")
            title = BY_NAME[name].what if name != "create" else "create, durable"
            rows.append([title, *cells])
        yield f"CPU in µs per request and relative to the yardstick, by {what}", [[what, *heads], *rows]
    stores = {store: seen for store, seen in part["processes"].items() if store.startswith("animals-")}
    yield "Start and idle memory by animals", [
        ["animals", *(f"{int(store.split('-')[1]):,}" for store in stores)],
        ["exec to first correct response, ms", *(spread(seen, "start_ms", 1) for seen in stores.values())],
        ["idle memory, MB", *(spread(seen, "idle_mb", 1) for seen in stores.values())],
    ]
    if cold := part.get("cold"):
        cache = "emptied before" if cold["page_cache_emptied"] else "not emptied, which needs root"
        times = cold["start_ms"]
        yield f"Start on {cold['animals']:,} animals, page cache {cache}", [
            ["", f"median of {len(times)} starts (minimum–maximum)"],
            ["exec to first correct response, ms", f"{median(times):.1f} ({min(times):.1f}–{max(times):.1f})"],
        ]


def postgres_tables(part):
    operations = {name: (figures["petstore"], figures["pgbench"]) for name, figures in part["operations"].items()}
    yield "PostgreSQL settings", [["setting", "value"], *map(list, part["settings"].items())]
    yield "Responses of petstore and transactions of pgbench per second", [
        ["", "petstore", "pgbench", "ratio of medians", "ratio by round", "by CPU alone"],
        *([BY_NAME[name].what, spread(ours, "rate", 0), spread(theirs, "rate", 0),
           f"{against_pgbench({'postgres': part}, name):.2f}×", paired(ours, theirs),
           f"{median(map(cpu_of_all, theirs)) / median(map(cpu_of_all, ours)):.2f}"]
          for name, (ours, theirs) in operations.items()),
    ]
    yield "CPU, user and system, in µs per response or transaction", [
        ["", "petstore", "PostgreSQL with petstore", "wrk", "PostgreSQL with pgbench", "pgbench"],
        *([BY_NAME[name].what, *(spread(ours, field, 1) for field in ("cpu_us", "database_us", "load_us")),
           *(spread(theirs, field, 1) for field in ("database_us", "load_us"))]
          for name, (ours, theirs) in operations.items()),
    ]
    yield "Requests per second and core, calculated from these figures", [
        ["", "petstore", "PostgreSQL with petstore", "PostgreSQL with pgbench"],
        *([BY_NAME[name].what, *(f"{1e6 / middle(figures, field):,.0f}" for figures, field in (
            (ours, "cpu_us"), (ours, "database_us"), (theirs, "database_us")))]
          for name, (ours, theirs) in operations.items()),
    ]
    yield "Latency in µs with 64 clients, and use of all cores by all processes", [
        ["", "petstore, p50", "petstore, p99", "pgbench, mean", "used with petstore", "used with pgbench"],
        *([BY_NAME[name].what, spread(ours, "p50_us", 0), spread(ours, "p99_us", 0), spread(theirs, "mean_us", 0),
           used(ours, part), used(theirs, part)]
          for name, (ours, theirs) in operations.items()),
    ]


def profile_tables(part):
    operations = part["operations"].values()
    heads = ["", *(operation["what"] for operation in operations)]
    for kind, digits, title in (("instructions", 0, "User-space instructions per request, by the code that runs them"),
                                ("calls", 1, "System calls per request")):
        groups = dict.fromkeys(group for operation in operations for group in operation[kind])
        rows = [[group, *(operation[kind].get(group, 0) for operation in operations)] for group in groups]
        rows = [row for row in rows if max(row[1:]) >= 0.05]
        rows.sort(key=lambda row: -sum(row[1:]))
        total = ["total", *(sum(operation[kind].values()) for operation in operations)]
        shown = [[row[0], *(f"{number:,.{digits}f}" for number in row[1:])] for row in (*rows, total)]
        yardstick = [operation["yardstick"].get(kind) for operation in operations]
        shown.append(["yardstick, total", *("" if n is None else f"{n:,.{digits}f}" for n in yardstick)])
        yield title, [heads, *shown]
    yield "The functions with the most instructions of their own", [
        ["", "function: instructions per request"],
        *([operation["what"], ", ".join(f"`{short(name)}` {number:,}" for name, number in operation["functions"])]
          for operation in operations),
    ]


def short(function):
    """Shortens the name of a Rust function to its last parts."""
    plain = re.sub(r"<([^<>]*) as [^<>]*>", r"\1", function)
    while plain != (plain := re.sub(r"<[^<>]*>", "", plain)):
        pass
    return "::".join(plain.removesuffix("::{{closure}}").split("::")[-2:])


def paired(ours, theirs):
    ratios = [our["rate"] / their["rate"] for our, their in zip(ours, theirs)]
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def used(figures, part):
    seconds = median(cpu_of_all(figure) * figure["rate"] for figure in figures) / 1e6
    return f"{seconds / part['cores']:.0%}"


def cpu_of_all(figure):
    """Returns the CPU time per response or transaction in µs, of petstore (if it runs), PostgreSQL and the load."""
    return figure.get("cpu_us", 0) + figure["database_us"] + figure["load_us"]


def goals_table(found):
    heads = ["goal", "limit", "measured", "", "cargo build --release"]
    return table([heads, *(goal.row() for goal in goals(found))])


def middle(figures, field):
    return median(figure[field] for figure in figures)


def spread(figures, field, digits):
    values = [figure[field] for figure in figures]
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def table(rows):
    """Formats an aligned Markdown table."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    head, *body = (f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths))} |" for row in rows)
    return "\n".join([head, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *body])
