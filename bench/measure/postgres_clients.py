"""Compares postgres-group-commit with other clients of PostgreSQL: inserts, reads beside them, and a fail-over under load."""

import json
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from cluster.processes import becomes, send

from . import Failed, crate, database, install, machine, plots

CRATE = "postgres-group-commit"
CLIENTS = (CRATE, "tokio-postgres", "deadpool-postgres", "sqlx")
COLOURS = dict(zip(CLIENTS, "adef"))
ROUNDS, SECONDS = 5, 3
# Tasks that insert, and that read.
LOADS = {"1": (1, 0), "8": (8, 0), "64": (64, 0), "512": (512, 0), "mixed": (64, 64)}
# Seconds from the end of the primary to the promotion of the standby, and from there to the end of the load.
PROMOTION, AFTER = 2, 8
# The rows that are read.
ROWS = 10_000
TABLE = f"""
    CREATE TABLE guests (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL);
    INSERT INTO guests (name) SELECT 'guest ' || id FROM generate_series(1, {ROWS}) AS id;
"""


def compare(options):
    """Measures everything, and writes it to the page of the crate."""
    found = crate.begin()
    install.tools(["cargo"])
    program = install.build("postgres-clients", "--manifest-path", "bench/postgres/Cargo.toml")
    options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir.resolve()) as folder:
        found |= measured(program, Path(folder), 2 if options.quick else ROUNDS, 2 if options.quick else SECONDS)
    if not options.quick:
        crate.write(CRATE, found, table(found), plot(found))


def measured(program, folder, rounds, seconds):
    found = {"rounds": rounds, "seconds": seconds}
    loads = {load: {client: [] for client in CLIENTS} for load in LOADS}
    with database.running(folder) as server:
        server.sql(TABLE)
        for number in range(1, rounds + 1):
            install.say(f"round {number} of {rounds} (a second, p99 in ms)")
            for load, results in loads.items():
                for client in CLIENTS:
                    results[client].append(measure(program, server, client, load, seconds))
                    install.say(f"  {load:6}{client:24}{results[client][-1]}")
        found |= {"machine": machine.described(folder, pinned=False), "settings": server.settings()}
        found["versions"] = crate.versions("bench/postgres", CLIENTS) | {"PostgreSQL": server.version()}
    failovers = {kind: {client: [] for client in CLIENTS} for kind in ("killed", "cancelled")}
    for number in range(1, rounds + 1):
        for kind, results in failovers.items():
            for client in CLIENTS:
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    results[client].append(fail_over(program, Path(place), client, kind))
                install.say(f"  fail-over, {kind:10}{client:24}{results[client][-1]}")
    return found | {"loads": loads, "failovers": failovers}


def measure(program, server, client, load, seconds):
    server.sql(f"DELETE FROM guests WHERE id > {ROWS}; VACUUM (ANALYZE) guests; CHECKPOINT")
    hosts, (writers, readers) = f"127.0.0.1:{server.port}", LOADS[load]
    command = [program, client, hosts, "load", str(writers), str(readers), str(seconds)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    if done.returncode != 0:
        raise Failed(f"{client}: {done.stderr}")
    result = json.loads(done.stdout)
    if (rows := server.count("guests") - ROWS) != (added := result.pop("added")):
        raise Failed(f"{client}: {added} acknowledged inserts, but {rows} rows")
    return result


def fail_over(program, folder, client, kind):
    """Kills the primary under load, promotes the standby, and returns what the client saw.

    With the kind `cancelled`, the primary loses its standby before, and the commits that wait for it are cancelled.
    """
    with database.pair(folder) as (primary, standby):
        primary.sql(TABLE)
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([program, client, hosts, "ledger"], text=True, **pipes) as process:
            if process.stdout.readline() != "ready\n":
                raise Failed(f"{client} does not insert")
            if kind == "cancelled":
                [[sender]] = primary.sql("SELECT pid FROM pg_stat_replication")
                send([int(sender)], signal.SIGSTOP)
                waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                if not becomes(lambda: primary.sql(f"SELECT count(*) > 0 {waiting}") == [["t"]], 10):
                    raise Failed(f"no commit of {client} waits for the standby")
                # The standby may have the first of them.
                for _ in range(3):
                    primary.sql(f"SELECT pg_cancel_backend(pid) {waiting}")
                    time.sleep(0.2)
            send(primary.processes(), signal.SIGKILL)
            time.sleep(PROMOTION)
            standby.sql("SELECT pg_promote()")
            time.sleep(AFTER)
            output, _ = process.communicate()
    if process.returncode != 0:
        raise Failed(f"{client} failed")
    return json.loads(output)


def table(found):
    def middle(figures, field):
        return median(figure[field] for figure in figures)

    def rates(title, load, rate, p99):
        of = found["loads"][load]
        return [title, *(f"{middle(of[client], rate):,.0f}/{middle(of[client], p99):,.1f}" for client in CLIENTS)]

    def outcomes(title, *fields):
        def cell(client):
            figures = (middle(found["failovers"][kind][client], field) for kind, field in fields)
            return "/".join(f"{figure:,.3g}" for figure in figures)

        return [title, *map(cell, CLIENTS)]

    return [
        ["", *CLIENTS],
        rates("inserts, 1 task", "1", "inserts", "p99_ms"),
        *(rates(f"{load} tasks", load, "inserts", "p99_ms") for load in ("8", "64", "512")),
        rates("reads beside 64 tasks", "mixed", "reads", "read_p99_ms"),
        outcomes("fail-over: seconds", ("killed", "gap_s")),
        outcomes("rows lost/after cancelled commits", ("killed", "lost"), ("cancelled", "lost")),
        outcomes("failed, but applied/unknown", ("killed", "failed_but_applied"), ("killed", "unknown")),
    ]


def plot(found):
    def row(load):
        return {client: [median(figure["inserts"] for figure in found["loads"][load][client])] for client in CLIENTS}

    tasks = {f"{load} task{'s' if load != '1' else ''}": row(load) for load in ("1", "8", "64", "512")}
    return plots.bars("Durable inserts a second; the axis is logarithmic", tasks, CLIENTS, colours=COLOURS)
