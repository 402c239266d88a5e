"""pgbench: each of 64 connections sends one statement and waits for its result."""

import os
import re
import subprocess
from typing import NamedTuple

from cluster.processes import becomes

from . import Failed
from .servers import ENVIRONMENT

CLIENTS, THREADS = 64, 2
# Plans each statement once, as petstore's connections do.
OPTIONS = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off"


SELECT = "SELECT id, name, category_id, status FROM pets"
LIST = f"{SELECT} WHERE status = 0 AND id > :after ORDER BY id"


class Script(NamedTuple):
    """A pgbench transaction and the values of its variables."""

    text: str
    variables: dict
    random: str = ""  # sets a random variable for each transaction
    table: str = ""  # table that grows by a row per transaction


def scripts(animals, account):
    """Returns the transaction of each operation, written for pgbench."""
    return {
        # The row after a page shows whether another page follows.
        "list20": Script(f"{LIST} LIMIT 21", {"after": 0}),
        "list20cold": Script(f"{LIST} LIMIT 21", {}, f"\\set after random(0, {animals - 100})\n"),
        "get": Script(f"{SELECT} WHERE id = :id", {}, f"\\set id random(1, {animals})\n"),
        # Ids start with the time, like petstore's. Random ones would make the index more expensive.
        "message": Script(
            "INSERT INTO messages (account_id, id, message, created_at) VALUES (:account, (lpad(to_hex((extract(epoch "
            "FROM now()) * 1000)::bigint), 12, '0') || lpad(to_hex(:rest::bigint), 20, '0'))::uuid, :message, :now)",
            {"account": account, "message": "Hello, number 12345678", "now": 1_800_000_000_000},
            f"\\set rest random(1, {2**60})\n",
            table="messages",
        ),
        "create": Script(
            "INSERT INTO pets (name, category_id, status) VALUES (:name, :category, :status) RETURNING id",
            {"name": "pet-12345678", "category": 7, "status": 0},
            table="pets",
        ),
    }


def measure(database, script, seconds, file):
    """Returns results per transaction. The cost of connections is measured before and subtracted."""
    file.write_text(f"{script.random}{script.text};\n")
    rows = database.count(script.table) if script.table else 0
    idle, spent = len(database.processes()), []
    for length in (["-t", "1"], ["-T", str(seconds)]):
        before = database.cpu_seconds(), children_seconds()
        result = run(database, script, file, length)
        # The server process of a connection ends slightly after its client.
        becomes(lambda: len(database.processes()) <= idle, 2, every=0.01)
        after = database.cpu_seconds(), children_seconds()
        spent.append([end - begin for begin, end in zip(before, after)])
    added = database.count(script.table) - rows if script.table else 0
    if script.table and added != CLIENTS + result["transactions"]:
        raise Failed(f"pgbench: {added} rows added by {CLIENTS + result['transactions']} transactions")
    server, load = ((whole - start) / (result["transactions"] - CLIENTS) * 1e6 for start, whole in zip(*spent))
    return {
        "rate": round(result["rate"], 1),
        "database_us": round(server, 2),
        "load_us": round(load, 2),
        "mean_us": round(CLIENTS / result["rate"] * 1e6),
    }


def run(database, script, file, length):
    command = [database.programs / "pgbench", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", str(THREADS)]
    command += [*length, "-f", file, *(f"-D{name}={value}" for name, value in script.variables.items()), database.url()]
    done = subprocess.run(command, text=True, capture_output=True, env={**ENVIRONMENT, "PGOPTIONS": OPTIONS})
    transactions = re.search(r"^number of transactions actually processed: (\d+)", done.stdout, re.MULTILINE)
    rate = re.search(r"^tps = ([\d.]+) \(without initial connection time\)", done.stdout, re.MULTILINE)
    failed = re.search(r"^number of failed transactions: ([1-9]\d*)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or failed or not transactions or not rate:
        raise Failed(f"pgbench failed:\n{done.stdout}{done.stderr}")
    return {"transactions": int(transactions[1]), "rate": float(rate[1])}


def children_seconds():
    """Returns the user and system time of all ended child processes."""
    times = os.times()
    return times.children_user + times.children_system
