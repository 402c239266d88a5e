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
SERVERS = ("petstore", "plain", "yardstick", "axum", "fastify", "fastapi")
ROUNDS, SECONDS = 5, 2
# The rivals' figures differ from petstore's by far more than between rounds, except for those of one client, which wait
# for the disk and are measured in all rounds. Latency at a fixed rate is measured only in the rounds with all servers.
RIVALS, RIVALS_ROUNDS, ALWAYS = ("axum", "fastify", "fastapi"), 2, "create1"
RIVALS_WARM_UP_SECONDS = 2
# A rival is measured with the faster value of its setting.
CHOICES = {axum: ("readers", (1, 4)), fastapi: ("workers", (1, 2))}


def expected_minutes(options):
    seconds = 15 + 30 * ("axum" in options.servers) + 60 * ("fastapi" in options.servers)
    for number in range(1, options.rounds + 1):
        seconds += 8
        for server in options.servers:
            for operation in options.operations:
                if takes_part(server, operation.name, number):
                    # Warm-up, load, oha if it runs, and starting them.
                    seconds += options.seconds + (2.3 if server in RIVALS else 1.3)
                    seconds += (options.seconds + 0.4) * (operation.open_loop and number <= RIVALS_ROUNDS)
    return seconds / 60


def takes_part(server, operation, number):
    return server not in RIVALS or number <= RIVALS_ROUNDS or operation == ALWAYS


def compare(options, petstore, yardstick, folder):
    """Returns all results, for the JSON file."""
    stores = folder / "stores"
    stores.mkdir()
    say(f"filling databases with {ANIMALS:,} animals")
    petstore = Petstore(petstore)
    key = petstore.fill(stores / "petstore", ANIMALS)
    others, chosen = [], {}
    if "plain" in options.servers:
        others.append(Petstore(options.plain, name="plain"))
        shutil.copytree(stores / "petstore", stores / "plain")
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
        others.append(rival)

    operations = {operation.name: {name: [] for name in options.servers} for operation in options.operations}
    processes = {name: [] for name in options.servers}
    syncs, sizes = {operation.name: [] for operation in options.operations if operation.load == "create"}, []
    for number in range(1, options.rounds + 1):
        say(f"round {number} of {options.rounds} (CPU µs per request)")
        one_round(options, number, petstore, yardstick, others, stores, key, operations, processes, syncs, sizes)
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


def one_round(options, number, petstore, yardstick, others, stores, key, operations, processes, syncs, sizes):
    """Runs a round with new copies of the databases and new processes."""
    with contextlib.ExitStack() as stack:
        copies = stores.parent / "round"
        shutil.rmtree(copies, ignore_errors=True)
        shutil.copytree(stores, copies)
        servers = list(stack.enter_context(petstore_and_yardstick(petstore, yardstick, copies / "petstore", key)))
        sizes.append(commit_bytes(servers[0], copies / "petstore"))
        needed = {name for name in options.servers for operation in options.operations
                  if takes_part(name, operation.name, number)}
        servers += [stack.enter_context(other.serve(copies / other.name, key)) for other in others
                    if other.name in needed]
        servers = [server for server in servers if server.name in needed]
        time.sleep(0.5)
        idle = [memory_mb(server) for server in servers]
        for operation in options.operations:
            if operation.name in syncs:
                syncs[operation.name].append(bare_sync_us(copies, sizes[-1]))
            shown = []
            for server in servers:
                if takes_part(server.name, operation.name, number):
                    warm_up = {"warm_up_seconds": RIVALS_WARM_UP_SECONDS} if server.name in RIVALS else {}
                    latency = number <= RIVALS_ROUNDS
                    figure = measure(server, operation, ANIMALS, options.seconds, open_loop=latency, **warm_up)
                    operations[operation.name][server.name].append(figure)
                    shown.append(f"{server.name} {figure['cpu_us']:.1f}")
            say(f"  {operation.name:14}{', '.join(shown)}")
        for server, before in zip(servers, idle):
            processes[server.name].append({"start_ms": round(server.start_ms, 2), "idle_mb": round(before, 2)})


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
