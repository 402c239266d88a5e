"""The comparison: all operations on all servers in turn, on databases of 100,000 animals."""

import contextlib
import shutil
import time

from . import machine
from .contestants import Petstore, axum, fastapi, fastify, petstore_and_yardstick
from .install import say
from .load import bare_sync_us, commit_bytes, measure
from .operations import BY_NAME
from .servers import memory_mb

ANIMALS = 100_000
SERVERS = ("petstore", "yardstick", "axum", "fastify", "fastapi")
ROUNDS, SECONDS = 5, 2
# No goal depends on the rivals, whose figures differ from petstore's by far more than between rounds.
RIVALS, RIVALS_ROUNDS = ("axum", "fastify", "fastapi"), 2
# Settings of a rival of which the faster value is measured.
CHOICES = {axum: ("readers", (1, 4)), fastapi: ("workers", (1, 2))}


def expected_minutes(options):
    # Per measurement: warm-up, load, oha if it runs, and starting them.
    each = [options.seconds + 1.3 + (options.seconds + 0.4) * operation.open_loop for operation in options.operations]
    filling = 15 + 20 * ("axum" in options.servers) + 40 * ("fastapi" in options.servers)
    servers = sum(rounds_of(server, options) for server in options.servers)
    return (filling + servers * sum(each) + options.rounds * 6) / 60


def rounds_of(server, options):
    return min(options.rounds, RIVALS_ROUNDS) if server in RIVALS else options.rounds


def compare(options, petstore, yardstick, folder):
    """Returns all results, for the JSON file."""
    stores = folder / "stores"
    stores.mkdir()
    say(f"filling databases with {ANIMALS:,} animals")
    petstore = Petstore(petstore)
    key = petstore.fill(stores / "petstore", ANIMALS)
    rivals, chosen = [], {}
    for make in (axum, fastify, fastapi):
        if make.__name__ not in options.servers:
            continue
        rival = make()
        rival.fill(stores / rival.name, ANIMALS, key)
        with trial(rival, stores, key) as server:
            rival.check(server)
        if make in CHOICES:
            setting, values = CHOICES[make]
            best = fastest(make, values, stores, key)
            say(f"{rival.name} is measured with {best} {setting}, the faster of {values[0]} and {values[1]}")
            rival, chosen[f"{rival.name} {setting}"] = make(best), best
        rivals.append(rival)

    operations = {operation.name: {name: [] for name in options.servers} for operation in options.operations}
    processes = {name: [] for name in options.servers}
    syncs, sizes = {operation.name: [] for operation in options.operations if operation.load == "create"}, []
    for number in range(1, options.rounds + 1):
        names = [name for name in options.servers if number <= rounds_of(name, options)]
        say(f"round {number} of {options.rounds} (CPU µs per request: {', '.join(names)})")
        one_round(options, names, petstore, yardstick, rivals, stores, key, operations, processes, syncs, sizes)
    return {
        "date": machine.today(),
        "animals": ANIMALS,
        "rounds": options.rounds,
        "rivals_rounds": min(options.rounds, RIVALS_ROUNDS),
        "seconds": options.seconds,
        "servers": list(options.servers),
        **chosen,
        "machine": machine.described(folder),
        "versions": machine.versions(petstore.binary, options.servers),
        "operations": operations,
        "commit_bytes": sizes[0],
        "bare_sync_us": syncs,
        "processes": processes,
    }


def one_round(options, names, petstore, yardstick, rivals, stores, key, operations, processes, syncs, sizes):
    """Runs a round with new copies of the databases and new processes."""
    with contextlib.ExitStack() as stack:
        copies = stores.parent / "round"
        shutil.rmtree(copies, ignore_errors=True)
        shutil.copytree(stores, copies)
        servers = list(stack.enter_context(petstore_and_yardstick(petstore, yardstick, copies / "petstore", key)))
        sizes.append(commit_bytes(servers[0], copies / "petstore"))
        servers += [stack.enter_context(rival.serve(copies / rival.name, key)) for rival in rivals
                    if rival.name in names]
        servers = [server for server in servers if server.name in names]
        time.sleep(0.5)
        idle = [memory_mb(server) for server in servers]
        for operation in options.operations:
            if operation.name in syncs:
                syncs[operation.name].append(bare_sync_us(copies, sizes[-1]))
            figures = [measure(server, operation, ANIMALS, options.seconds) for server in servers]
            for server, figure in zip(servers, figures):
                operations[operation.name][server.name].append(figure)
            say(f"  {operation.name:12}" + "".join(f"{figure['cpu_us']:9.1f}" for figure in figures))
        for server, before in zip(servers, idle):
            after = {"start_ms": server.start_ms, "idle_mb": before, "loaded_mb": memory_mb(server)}
            processes[server.name].append({name: round(value, 2) for name, value in after.items()})


@contextlib.contextmanager
def trial(rival, stores, key):
    """Runs a rival on a temporary copy of its database."""
    copy = stores.parent / "trial"
    shutil.copytree(stores / rival.name, copy)
    try:
        with rival.serve(copy, key) as server:
            yield server
    finally:
        shutil.rmtree(copy)


def fastest(make, values, stores, key):
    """Returns the value of a rival's setting with the highest throughput on the server core."""
    rates = {}
    for value in values:
        with trial(make(value), stores, key) as server:
            figures = [measure(server, BY_NAME[name], ANIMALS, 2, open_loop=False) for name in ("list20", "create")]
        rates[value] = figures[0]["rate"] * figures[1]["rate"]
    return max(rates, key=rates.get)
