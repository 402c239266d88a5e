"""Plots as SVG, for light and dark pages."""

import math
from html import escape
from statistics import median

from .operations import BY_NAME

WIDTH = 860
LEFT = 240  # space for the row names
# Possible ends of a logarithmic axis.
STEPS = [base * 10**power for power in range(-1, 8) for base in (1, 2, 5)]
STYLE = """
  svg { --ink: #1f2937; --soft: #6b7280; --line: #e5e7eb; --page: #ffffff;
        --petstore: #2563eb; --plain: #93b4f8; --yardstick: #9ca3af; --axum: #059669; --fastify: #d97706;
        --fastapi: #be185d;
        --a: #2563eb; --b: #7c3aed; --c: #0891b2; --d: #059669; --e: #d97706; --f: #9ca3af;
        font: 13px system-ui, sans-serif; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e5e7eb; --soft: #9ca3af; --line: #374151; --page: #111827;
          --petstore: #60a5fa; --plain: #3b5fb0; --yardstick: #6b7280; --axum: #34d399; --fastify: #fbbf24;
          --fastapi: #f472b6;
          --a: #60a5fa; --b: #a78bfa; --c: #22d3ee; --d: #34d399; --e: #fbbf24; --f: #6b7280; }
  }
  text { fill: var(--ink); } .soft { fill: var(--soft); font-size: 12px; }
  .value { fill: var(--soft); font-size: 12px; stroke: var(--page); stroke-width: 4px; paint-order: stroke; }
  .title { font-weight: 600; font-size: 15px; }
  .grid { stroke: var(--line); } .page { fill: var(--page); }
"""


def pictures(found):
    """Returns the SVG plots by name."""
    drawn = {}
    if comparison := found.get("comparison"):
        operations, servers = comparison["operations"], comparison["servers"]
        drawn["cpu"] = bars(
            "Server CPU per request, in µs; the axis is logarithmic",
            {BY_NAME[name].what: {server: [middle(figures[server], "cpu_us")] for server in servers}
             for name, figures in operations.items()},
            servers,
        )
        if latencies := latency_rows(operations, servers):
            title = "Latency at half of its own peak, p50 to p99, in µs; the axis is logarithmic"
            drawn["latency"] = bars(title, latencies, servers)
    if growth := found.get("growth"):
        drawn["growth"] = curves(growth)
    return drawn


def middle(figures, field):
    return median(figure[field] for figure in figures)


def latency_rows(operations, servers):
    rows = {}
    for name, figures in operations.items():
        loads = figures[servers[0]][0].get("open", {})
        for load in loads:
            what = BY_NAME[load].what.split(",")[0] + " in the mix" if len(loads) > 1 else BY_NAME[name].what
            seen = {server: [figure["open"][load] for figure in figures[server] if "open" in figure]
                    for server in servers}
            rows[what] = {s: [middle(each, "p50_us"), middle(each, "p99_us")] for s, each in seen.items()}
    return rows


def picture(height, title, parts, width=WIDTH):
    """Returns an SVG document with an accessible title."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([
        f'{head} role="img" aria-label="{escape(title)}">', f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
        text(20, 30, title, "title"), *parts, "</svg>", "",
    ])


def text(x, y, what, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(str(what))}</text>'


def line(x1, y1, x2, y2, kind="grid", more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" {more}/>'


def number(value):
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}"


def bars(title, rows, servers, from_zero=False, colours=None):
    """Draws a row of bars per operation: a bar for one value, a span for two. The axis is logarithmic or begins at zero.

    `colours` has the letters of the servers' colours. Without it, they have colours of their own.
    """
    values = [value for row in rows.values() for pair in row.values() for value in pair]
    low, high = around(values)
    marks = [high * mark / 5 for mark in range(6)] if from_zero else ticks(low, high)
    right = WIDTH - 130
    thick, gap = 12, 16
    top, tall = 78, len(servers) * (thick + 2) + gap
    bottom = top + len(rows) * tall

    def at(value):
        return LEFT + (right - LEFT) * (value / high if from_zero else math.log(value / low) / math.log(high / low))

    parts = legend(servers, 52, colours=colours)
    for tick in marks:
        parts.append(line(at(tick), top - 6, at(tick), bottom - 6))
        parts.append(text(at(tick), bottom + 12, f"{tick:,g}", "soft", "middle"))
    drawn = []
    for index, (what, row) in enumerate(rows.items()):
        y = top + index * tall
        parts.append(text(LEFT - 12, y + (tall - gap) / 2 + 4, what, "", "end"))
        for place, server in enumerate(servers):
            begin, end = (LEFT, at(row[server][0])) if len(row[server]) == 1 else map(at, row[server])
            level = y + place * (thick + 2)
            drawn.append(
                f'<rect x="{begin:.1f}" y="{level}" width="{max(end - begin, 2):.1f}" height="{thick}" rx="2" '
                f'style="fill: var(--{(colours or {}).get(server, server)})"/>'
            )
            shown = " – ".join(map(number, row[server]))
            parts.append(text(end + 6, level + thick - 2, shown, "value"))
    # Drawn last, on top of the margins between grid and figures.
    return picture(bottom + 28, title, parts + drawn)


def around(values):
    """Returns the ends of a logarithmic axis, with some length for the minimum."""
    return max(step for step in STEPS if step <= min(values) * 0.9), min(step for step in STEPS if step >= max(values))


def ticks(low, high):
    """Returns round numbers on a logarithmic axis, fewer on a longer axis."""
    bases = "125" if high / low <= 2000 else "1"
    return [step for step in STEPS if low <= step <= high and f"{step:.0e}"[0] in bases]


def legend(names, y, x=20, colours=None):
    parts = []
    for name in names:
        colour = (colours or {}).get(name, name)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="2" style="fill: var(--{colour})"/>')
        parts.append(text(x + 18, y, name))
        x += 36 + 6.6 * len(name)
    return parts


def curves(growth):
    """Draws CPU by animals and by connections, side by side. The yardstick is dashed."""
    names = list(growth["sizes"])
    colours = dict(zip(names, "abcde"))
    shown = {BY_NAME[name].what.split(", durable")[0]: colours[name] for name in names}
    values = [
        middle(figures, "cpu_us")
        for part in ("sizes", "connections")
        for points in growth[part].values()
        for servers in points.values()
        for figures in servers.values()
    ]
    top, bottom, ends = 108, 388, around(values)
    parts = legend(shown, 54, colours=shown)
    parts.append(text(20, 78, "solid: petstore; dashed: the yardstick", "soft"))
    for part, what, left in (("sizes", "animals", 60), ("connections", "connections", 490)):
        parts += panel(growth[part], what, left, left + 340, top, bottom, ends, colours)
    return picture(bottom + 54, "Server CPU per request as things grow, in µs; the axes are logarithmic", parts)


def panel(operations, what, left, right, top, bottom, ends, colours):
    low, high = ends
    labels = [int(label) for label in next(iter(operations.values()))]
    span = math.log(labels[-1] / labels[0]) or 1

    def x(label):
        return left + (right - left) * math.log(int(label) / labels[0]) / span

    def y(value):
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    parts = []
    for value in ticks(low, high):
        parts += [line(left, y(value), right, y(value)), text(left - 8, y(value) + 4, f"{value:g}", "soft", "end")]
    parts += [text(x(label), bottom + 20, f"{label:,}", "soft", "middle") for label in labels]
    parts.append(text((left + right) / 2, bottom + 42, what, "", "middle"))
    for name, points in operations.items():
        for server, dash in (("yardstick", 'stroke-dasharray="3 4" opacity="0.8"'), ("petstore", "")):
            places = [(x(label), y(middle(figures[server], "cpu_us"))) for label, figures in points.items()]
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
            colour = f"var(--{colours[name]})"
            parts.append(f'<polyline points="{path}" {dash} style="fill: none; stroke: {colour}; stroke-width: 2"/>')
            if server == "petstore":
                parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" style="fill: {colour}"/>' for a, b in places]
    return parts
