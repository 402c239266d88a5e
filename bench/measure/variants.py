"""The variants: petstore and the yardstick with TLS, petstore on two cores, orders, and a minute of full load."""

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import SHARED, SPLIT, machine
from .contestants import Petstore, petstore_and_yardstick
from .install import say
from .load import measure
from .operations import BY_NAME, ORDERS
from .servers import memory_mb

ANIMALS, ORDER_ANIMALS = 100_000, 1_000_000
ROUNDS, SECONDS = 5, 2
READS = ("list20", "get")
LOADED_SECONDS = 60


def expected_minutes(options):
    measurements = 2 * (2 * len(READS) + len(ORDERS))
    filling, loaded = 20, 5 if options.quick else LOADED_SECONDS
    return (filling + options.rounds * (measurements * (options.seconds + 1.3) + 5) + loaded) / 60


def vary(options, binary, yardstick, folder):
    """Returns all results, for the JSON file."""
    stores, petstore = folder / "stores", Petstore(binary)
    stores.mkdir()
    say(f"filling databases with {ANIMALS:,} and {ORDER_ANIMALS:,} animals")
    key = petstore.fill(stores / "animals", ANIMALS)
    orders_key = petstore.fill(stores / "orders", ORDER_ANIMALS)
    secured = Petstore(binary, tls=certificate(folder))
    found = {"tls": {}, "cores": {}, "orders": {}}
    for number in range(1, options.rounds + 1):
        say(f"round {number} of {options.rounds} (CPU µs per request)")
        with fresh(stores / "animals") as data, petstore_and_yardstick(secured, yardstick, data, key) as servers:
            measure_reads(options, dict(zip(("petstore", "yardstick"), servers)), found["tls"])
        with contextlib.ExitStack() as stack:
            servers = {}
            for name, cores in (("one core", SPLIT), ("two cores", SHARED)):
                data = stack.enter_context(fresh(stores / "animals"))
                servers[name] = stack.enter_context(Petstore(binary, cores).serve(data, key))
            measure_reads(options, servers, found["cores"])
        for order in ORDERS:
            with fresh(stores / "orders") as data, petstore.serve(data, orders_key) as server:
                for operation in (BY_NAME["create"], order):
                    figure = measure(server, operation, ORDER_ANIMALS, options.seconds, open_loop=False)
                    add(found["orders"], order.name, operation.name.removesuffix("far"), figure)
    return {
        "date": machine.today(),
        "animals": ANIMALS,
        "order_animals": ORDER_ANIMALS,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "machine": machine.described(folder),
        "versions": machine.versions(binary, ()),
        **found,
        "loaded": loaded(options, Petstore(binary, SHARED), stores, key),
    }


def measure_reads(options, servers, found):
    for name in READS:
        for which, server in servers.items():
            add(found, name, which, measure(server, BY_NAME[name], ANIMALS, options.seconds, open_loop=False))


def add(found, operation, which, figure):
    found.setdefault(operation, {}).setdefault(which, []).append(figure)
    say(f"  {operation:10}{which:10}{figure['cpu_us']:9.1f}")


def loaded(options, petstore, stores, key):
    """Returns the memory of petstore on both cores before and after the mix."""
    seconds = options.seconds if options.quick else LOADED_SECONDS
    say(f"{seconds} s of the mix")
    with fresh(stores / "animals") as data, petstore.serve(data, key) as server:
        idle = memory_mb(server)
        figure = measure(server, BY_NAME["mix"], ANIMALS, seconds, open_loop=False)
        return {"seconds": seconds, "idle_mb": round(idle, 2), "mb": round(memory_mb(server), 2), **figure}


@contextlib.contextmanager
def fresh(store):
    """Provides a temporary copy of a database."""
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        yield Path(shutil.copytree(store, f"{folder}/{store.name}"))


def certificate(folder):
    """Makes a certificate. Returns the arguments with which a server uses it."""
    file, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=localhost", "-days", "2", "-out", file, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    return ["--tls-cert", file, "--tls-key", key]
