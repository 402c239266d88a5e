"""petstore on PostgreSQL and pgbench for the same rows, each sharing the machine with the server."""

import json
import os

from . import Failed, machine, pgbench
from .contestants import Petstore
from .database import running
from .install import say
from .load import measure
from .operations import request
from .servers import ask

ANIMALS = 100_000
OPERATIONS = ("list20", "list20cold", "get", "message", "create")
ROUNDS, SECONDS = 5, 4


class PetstoreOnPostgres(Petstore):
    """petstore on PostgreSQL. Its folder has only its log."""

    def __init__(self, binary, database):
        super().__init__(binary, cores=None)
        self.database = database

    def store(self, folder):
        return ["--database-url", self.database.url()]


def expected_minutes(options):
    # Per operation: the warm-ups, petstore, pgbench.
    each = 2 * options.seconds + 3
    return (15 + options.rounds * (len(options.operations) * each + 5)) / 60


def measure_both(options, binary, folder):
    """Returns all results, for the JSON file."""
    with running(folder) as database:
        say(f"filling PostgreSQL {database.version()} with {ANIMALS:,} animals")
        petstore = PetstoreOnPostgres(binary, database)
        key = petstore.fill(folder / "petstore", ANIMALS)
        scripts = pgbench.scripts(ANIMALS, account=database.sql("SELECT id FROM accounts")[0][0])
        operations = {operation.name: {"petstore": [], "pgbench": []} for operation in options.operations}
        for number in range(1, options.rounds + 1):
            say(f"round {number} of {options.rounds} (per second: petstore, pgbench; µs of petstore, of PostgreSQL)")
            renew(database)
            with petstore.serve(folder / "petstore", key) as server:
                check_same_animals(server, database, scripts)
                for operation in options.operations:
                    ours = measure_ours(server, database, operation, scripts[operation.name], options.seconds)
                    file = folder / f"{operation.name}.sql"
                    theirs = pgbench.measure(database, scripts[operation.name], options.seconds, file)
                    operations[operation.name]["petstore"].append(ours)
                    operations[operation.name]["pgbench"].append(theirs)
                    say(f"  {operation.name:12}{ours['rate']:9.0f}{theirs['rate']:9.0f}"
                        f"{ours['cpu_us']:9.1f}{ours['database_us']:9.1f}")
            if server.process.returncode != 0:
                raise Failed(f"unclean shutdown of petstore:\n{(folder / 'petstore/serve.log').read_text()[-2000:]}")
        return {
            "date": machine.today(),
            "animals": ANIMALS,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "cores": os.cpu_count(),
            "machine": machine.described(folder, pinned=False),
            "versions": machine.postgres_versions(binary, database.version()),
            "settings": database.settings(),
            "operations": operations,
        }


def renew(database):
    """Restores the filled database, and completes pending work of the server."""
    database.sql(f"DELETE FROM pets WHERE id > {ANIMALS}; TRUNCATE messages; VACUUM (ANALYZE); CHECKPOINT")
    if database.sql("SELECT min(id), max(id), count(*) FROM pets") != [["1", str(ANIMALS), str(ANIMALS)]]:
        raise Failed("the animals differ from the imported ones")


def check_same_animals(server, database, scripts):
    """Checks that the rows of pgbench's statement are the animals in petstore's response."""
    for name, number in (("list20", 0), ("list20cold", ANIMALS // 2), ("get", ANIMALS // 2)):
        answer = json.loads(ask(server.addresses["store"], server.key, request(name, number)).body)
        animals = answer if isinstance(answer, list) else [answer]
        rows = database.sql(f"{scripts[name].text};", {"id": number, "after": number, **scripts[name].variables})
        shown = [[str(animal["id"]), animal["name"], str(animal["categoryId"])] for animal in animals]
        if shown != [row[:3] for row in rows[:20]]:
            raise Failed(f"{name}: petstore returns {answer}, but PostgreSQL {rows}")


def measure_ours(server, database, operation, script, seconds):
    rows = database.count(script.table) if script.table else 0
    meters = {"database_us": database.cpu_seconds, "load_us": pgbench.children_seconds}
    figure = measure(server, operation, ANIMALS, seconds, open_loop=False, meters=meters)
    # Requests abandoned by wrk at its end have rows, too.
    if script.table and (added := database.count(script.table) - rows) < figure["answers"]:
        raise Failed(f"{operation.name}: {figure['answers']} responses, but {added} rows")
    return figure
