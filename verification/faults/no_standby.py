"""Promise 5: no write is acknowledged while no standby can confirm it."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

from cluster.database import sql
from cluster.http import request
from cluster.petstore import create_pet
from cluster.processes import Failed, wait_until

from . import runbook
from .ledger import Ledger
from .load import connection_to, rows, write
from .trial import Result

AT_ONCE = 10
CANCEL = """
    SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'petstore' AND wait_event = 'SyncRep'"""


def run(row, trial):
    cluster, wanted = trial.cluster(), trial.rounds(row.rounds)
    ledger, failures = Ledger(f"row5-{trial.seed}"), []

    stopped, false_when_stopped = 0, 0
    while stopped < wanted:
        written, false, _ = without_standbys(cluster, ledger, AT_ONCE)
        stopped, false_when_stopped = stopped + written, false_when_stopped + false
        trial.say(f"standbys stopped: {stopped} of {wanted} writes, {false_when_stopped} false 201")

    cancelled, writes, false_when_cancelled = 0, 0, 0
    while cancelled < wanted:
        written, false, cancels = without_standbys(cluster, ledger, 1, cancel=True)
        if not cancels:
            failures.append("no commit was seen waiting for its standby")
            break
        writes, false_when_cancelled, cancelled = writes + written, false_when_cancelled + false, cancelled + cancels
        trial.say(f"commits cancelled: {cancelled} of {wanted}, {writes} writes, {false_when_cancelled} false 201")

    if false_when_stopped or false_when_cancelled:
        failures.append(f"{false_when_stopped} false 201 with standbys stopped, {false_when_cancelled} with cancels")
    differences = ledger.compare(rows(cluster, ledger.prefix))
    failures += differences.failures()

    trial.say("control: the same without synchronous replication")
    cluster.set_synchronous(False)
    _, control, _ = without_standbys(cluster, Ledger(f"control5-{trial.seed}"), AT_ONCE)
    cluster.set_synchronous(True)
    trial.say("the runbook: write without standbys, then with them again")
    without = follow_runbook(cluster)
    if not control:
        failures.append("the control acknowledged nothing either: the test can't see a false 201")
    return Result(
        f"{stopped} writes with stopped standbys, {false_when_stopped} false 201; {cancelled} commits cancelled, "
        f"{writes} writes, {false_when_cancelled} false 201; {differences.settled} of {len(ledger.unknown)} unknown "
        f"are there; without synchronous replication {control} were acknowledged; {without}",
        failures,
    )


def follow_runbook(cluster):
    """Ends a write outage as docs/runbook.md says, and undoes that. Returns the figure."""
    diagnose, end, undo = runbook.blocks()
    wait_until("a write before", lambda: probe(cluster), 60)
    for standby in cluster.standbys():
        standby.kill()
    wait_until("the end of writes", lambda: "petstore_postgres_standbys_connected 0" in metrics(cluster), 60)
    if "\n f\n" not in runbook.follow(cluster, diagnose) or probe(cluster):
        raise Failed("a primary without standbys accepts writes")
    begin = time.monotonic()
    runbook.follow(cluster, end)
    wait_until("a write without standbys", lambda: probe(cluster), 60)
    seconds = time.monotonic() - begin
    cluster.heal()
    runbook.follow(cluster, undo)
    wait_until("two synchronous standbys", lambda: len(cluster.sync_standbys()) == 2 and probe(cluster), 60)
    wait_until("their metrics", lambda: "petstore_postgres_standbys_connected 2" in metrics(cluster), 60)
    return f"by the runbook's commands, writes worked without standbys after {seconds:.1f} s, and wait for them again"


def metrics(cluster):
    return request(cluster.petstores[0].ports["ops"], "/metrics")[1].decode()


def without_standbys(cluster, ledger, at_once, cancel=False):
    """Writes to every process while all standbys hang. Returns the counts of writes, acknowledgements and cancels."""
    wait_until("a write before", lambda: probe(cluster), 60)
    leader, standbys = cluster.leader(), cluster.standbys()
    with contextlib.ExitStack() as undo:
        for standby in standbys:
            undo.callback(standby.resume)
            standby.pause()
        key, ports = cluster.state.key_file.read_text().strip(), [each.ports["store"] for each in cluster.petstores] * at_once
        with ThreadPoolExecutor(len(ports)) as clients:
            writes = [clients.submit(lambda port=port: write(connection_to(port), key, ledger)) for port in ports]
            cancels = 0
            while not all(each.done() for each in writes):
                cancels += len(sql(cluster.state, leader.port, CANCEL)) if cancel else 0
                time.sleep(0.02)
        return len(writes), sum(each.result() for each in writes), cancels


def probe(cluster):
    """Returns whether every process can write again."""
    return all(create_pet(cluster.state, "probe", process.ports["store"]) for process in cluster.petstores)
