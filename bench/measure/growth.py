"""The growth: petstore and the yardstick with more animals, more connections and longer names."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from . import machine
from .contestants import Petstore, petstore_and_yardstick
from .install import say
from .load import measure
from .operations import BY_NAME
from .servers import memory_mb

ROUNDS, SECONDS = 3, 2
SIZES = (1_000, 100_000, 10_000_000)
CONNECTIONS = (1, 8, 64, 256, 1024)
SIZES_OPERATIONS = ("list20", "list20cold", "list100", "get", "create")
CONNECTIONS_OPERATIONS = ("list20", "get", "create")
NAMES_OPERATIONS = ("list20", "list100", "get", "create")
# Appended to the 12 characters of every name, up to the maximum of 255. The last one has 1 to 4 bytes per character.
PADDING = {"12": "", "255, ASCII": "x" * 243, "255, of all lengths": ("aü犬🐕" * 61)[:243]}
# Copying a larger database in each round would take longer than measuring.
COPIED_BELOW = 1_000_000
COLD_STARTS = 5


class Case(NamedTuple):
    """One point of a curve: a database and its load."""

    label: str
    store: str
    animals: int
    padding: str = ""
    clients: int | None = None


def cases(quick):
    """Returns the operations and cases of each part. The largest database of a quick run is smaller."""
    sizes = (*SIZES[:2], 1_000_000) if quick else SIZES
    return {
        "sizes": (SIZES_OPERATIONS, [Case(str(size), f"animals-{size}", size) for size in sizes]),
        "connections": (
            CONNECTIONS_OPERATIONS,
            [Case(str(clients), "animals-100000", 100_000, clients=clients) for clients in CONNECTIONS],
        ),
        "names": (
            NAMES_OPERATIONS,
            [
                Case(label, f"names-{number}" if padding else "animals-100000", 100_000, padding)
                for number, (label, padding) in enumerate(PADDING.items())
            ],
        ),
    }


def expected_minutes(options):
    measurements = sum(len(names) * len(points) for names, points in cases(options.quick).values()) * 2
    filling = 20 if options.quick else 120
    return (filling + options.rounds * (measurements * (options.seconds + 1.3) + 20)) / 60


def grow(options, binary, yardstick, folder):
    """Returns all results, for the JSON file."""
    petstore, parts = Petstore(binary), cases(options.quick)
    stores, keys = {case.store: case for _, points in parts.values() for case in points}, {}
    for store, case in stores.items():
        say(f"filling {store} with {case.animals:,} animals")
        keys[store] = petstore.fill(folder / store, case.animals, case.padding)

    found = {part: {name: {} for name in names} for part, (names, _) in parts.items()}
    processes = {}
    for number in range(1, options.rounds + 1):
        for part, (names, points) in parts.items():
            say(f"round {number} of {options.rounds}: {part} {', '.join(case.label for case in points)}")
            say("  (CPU µs per request: petstore, yardstick; for each)")
            one_round(options, petstore, yardstick, folder, keys, names, points, found[part], processes)
    return {
        "date": machine.today(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "machine": machine.described(folder),
        "versions": machine.versions(binary, ()),
        **found,
        "processes": processes,
        "cold": cold_starts(petstore, folder, parts["sizes"][1][-1], keys),
    }


def cold_starts(petstore, folder, case, keys):
    """Starts petstore on the largest database. Runs last, because it empties the page cache if permitted."""
    cold, times = True, []
    for _ in range(COLD_STARTS):
        cold = emptied_page_cache() and cold
        with petstore.serve(folder / case.store, keys[case.store]) as server:
            times.append(round(server.start_ms, 2))
    say(f"start on {case.animals:,} animals, {'not ' if cold else ''}in the page cache: {times} ms")
    return {"animals": case.animals, "page_cache_emptied": cold, "start_ms": times}


def emptied_page_cache():
    """Empties the page cache, also of the program. Returns whether that was permitted."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


def one_round(options, petstore, yardstick, folder, keys, names, points, found, processes):
    """Serves all databases of a part at once, so that compared values are measured at nearly the same time."""
    with contextlib.ExitStack() as stack:
        # Runs last, when all servers have ended.
        stack.callback(shutil.rmtree, folder / "round", ignore_errors=True)
        servers = {}
        for case in points:
            if case.store not in servers:
                data = fresh(folder, case)
                pair = petstore_and_yardstick(
                    petstore, yardstick, data, keys[case.store], case.padding, case.animals // 2
                )
                servers[case.store] = stack.enter_context(pair)
                seen = {"start_ms": round(servers[case.store][0].start_ms, 2)}
                seen["idle_mb"] = round(memory_mb(servers[case.store][0]), 2)
                processes.setdefault(case.store, []).append(seen)
        for name in names:
            shown = []
            for case in points:
                operation = BY_NAME[name]
                if case.clients:
                    operation = operation._replace(clients=case.clients)
                for server in servers[case.store]:
                    figure = measure(server, operation, case.animals, options.seconds, case.padding, open_loop=False)
                    found[name].setdefault(case.label, {}).setdefault(server.name, []).append(figure)
                    shown.append(f"{figure['cpu_us']:8.1f}")
            say(f"  {name:12}" + "".join(shown))


def fresh(folder, case):
    """Returns the database for this round: a copy, or the original if copying would take too long."""
    if case.animals >= COPIED_BELOW:
        return folder / case.store
    copy = folder / "round" / case.store
    shutil.copytree(folder / case.store, copy)
    return copy
