"""The load by which the compiler learns which code is hot, on SQLite, with TLS and on PostgreSQL."""

from . import database, variants
from .contestants import Petstore
from .install import say
from .postgres import PetstoreOnPostgres
from .profile import ANIMALS, PROFILED, connected

REQUESTS = 4_096


def expected_minutes(_options):
    return 1


def train(binary, folder):
    """Runs the operations of the profile. An instrumented program stores its counts where it was built to."""
    with database.running(folder) as postgres:
        for name, petstore in (
            ("SQLite", Petstore(binary, cores=None)),
            ("TLS", Petstore(binary, cores=None, tls=variants.certificate(folder))),
            ("PostgreSQL", PetstoreOnPostgres(binary, postgres)),
        ):
            say(f"training: {name}")
            store = folder / name
            key = petstore.fill(store, ANIMALS)
            with petstore.serve(store, key) as server:
                for operation in PROFILED:
                    with connected(server, operation) as load:
                        load(REQUESTS)
