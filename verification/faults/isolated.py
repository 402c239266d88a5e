"""Promise 43: a primary that is cut off from the others acknowledges no write, and its reads do not stay stale.

The cluster runs on four machines: three with a PostgreSQL server, its Patroni and a petstore process each, and a hub with
etcd, HAProxy and the clients. More clients run on the machine of the primary and use its petstore process.
"""

import contextlib
import json
import signal
import statistics
import threading
import time
from typing import NamedTuple

from cluster.database import sql
from cluster.http import request
from cluster.petstore import Petstore, create_pet
from cluster.processes import send, wait_until
from cluster.state import LISTENERS

from .failover import noted
from .ledger import Ledger
from .load import Load, connection_to, rows, write
from .machines import connect, machines
from .trial import Result

# Longest time of stale reads: wal_sender_timeout, the interval of the checks, and the timeout of one.
STALE = 8
# Ways to cut off the primary's machine. True if a standby is promoted.
HANGS = "cut off with a Patroni that hangs"
WAYS = {
    HANGS: True,
    "cut off": True,
    "deaf": True,
    "mute": True,
    "cut off from etcd": True,
    "cut off from the standbys": False,
}


def run(row, trial):
    with machines(3) as (hub, others):
        with trial.new_cluster(lambda cluster: place(cluster, hub, others)) as cluster:
            return partitions(row, trial, cluster, hub, dict(zip((member.name for member in cluster.members), others)))


def place(cluster, hub, others):
    """Assigns a machine to each process, and connects them."""
    ports = cluster.state.ports
    shared = ("etcd", "etcd_peer", "primary", "standbys", "store", "messages", "haproxy_stats")
    ports_of = {hub: [ports[name] for name in shared]}
    for machine, member, petstore in zip(others, cluster.members, cluster.petstores):
        ports_of[machine] = [member.port, member.api_port, *petstore.ports.values()]
        member.start, petstore.start = machine.runs(member.start), machine.runs(petstore.start)
        petstore.flags = ["--require-standbys"]
    connect(ports_of)


def partitions(row, trial, cluster, hub, machine_of):
    random, rounds, failures = trial.random(row.number), trial.rounds(row.rounds), []
    ledger, inside, control = (Ledger(f"{name}43-{trial.seed}") for name in ("outside", "inside", "control"))
    seen = []
    with Load(cluster.state, ledger) as load, noted(failures):
        for number in range(1, rounds + 1):
            way = list(WAYS)[(number - 1) % len(WAYS)]
            found = partition(cluster, hub, machine_of, load, random, way, inside, control)
            seen.append(found)
            trial.say(f"partition {number} of {rounds}, {way}: {found}")
            cluster.heal()
    lost = []
    for each in (ledger, inside):
        differences = each.compare(rows(cluster, each.prefix))
        lost += differences.lost
        failures += differences.failures()
    acknowledged = sum(each.acknowledged for each in seen)
    if acknowledged:
        failures.append(f"{acknowledged} writes acknowledged on the wrong side")
    stale = max((each.stale for each in seen), default=0)
    if stale > STALE:
        failures.append(f"reads were stale for {stale:.1f} s")
    lost_locally = len(control.compare(rows(cluster, control.prefix)).lost)
    if not lost_locally:
        failures.append("the control lost nothing: the test can't see a loss")
    unbounded = [each.stale_unchecked for each in seen if each.way == HANGS]
    if unbounded and min(unbounded) <= STALE:
        failures.append("the control read nothing stale: the test can't see stale reads")
    trial.failed = trial.failed or bool(failures)
    # Cut off from etcd only, the process follows the new primary.
    ends = [each.last_read for each in seen if each.way != "cut off from etcd"]
    return Result(
        f"{len(seen)} partitions of the primary ({', '.join(WAYS)}), {sum(each.tried for each in seen)} writes tried and "
        f"{acknowledged} acknowledged on the wrong side, {len(lost)} lost of "
        f"{len(ledger.acknowledged) + len(inside.acknowledged)} acknowledged; stale reads for {stale:.1f} s at most, the last "
        f"read on the wrong side {statistics.median(ends or [0]):.1f} s (median), {max(ends, default=0):.1f} s (most) after "
        f"the cut; {lost_locally} of {len(control.acknowledged)} writes with synchronous_commit = local lost; "
        f"without --require-standbys, stale for {max(unbounded, default=0):.1f} s beside a Patroni that hangs, until the "
        "partition ended",
        failures,
    )


class Found(NamedTuple):
    """The outcome of one partition. Times are in seconds."""

    way: str
    tried: int  # writes sent to the petstore process beside the primary during the partition
    acknowledged: int  # of these; 0 if the process may reach the new primary
    stale: float
    stale_unchecked: float  # without --require-standbys
    last_read: float  # after the cut

    def __str__(self):
        return (
            f"{self.tried} writes tried, {self.acknowledged} acknowledged, reads until {self.last_read:.1f} s after the cut, "
            f"stale for {self.stale:.1f} s ({self.stale_unchecked:.1f} s without --require-standbys)"
        )


def partition(cluster, hub, machine_of, load, random, way, ledger, control):
    """Cuts off the machine of the primary and heals it."""
    begin = time.monotonic()
    wait_until("writes before the partition", lambda: load.first_after(begin), 30)
    primary = wait_until("a primary", cluster.leader, 10)
    machine = machine_of[primary.name]
    standbys = [each for each in machine_of.values() if each is not machine]
    beside = cluster.petstores[cluster.members.index(primary)]
    with contextlib.ExitStack() as clients:
        checked = clients.enter_context(Clients(cluster.state, machine, beside.ports["store"], ledger))
        unchecked = None
        if way == HANGS:
            port = clients.enter_context(without_flag(cluster.state, machine))
            unchecked = clients.enter_context(Clients(cluster.state, machine, port))
        time.sleep(random.uniform(0.5, 1.5))
        if way == HANGS:
            send([primary.patroni.pid], signal.SIGSTOP)
        others = {"cut off from etcd": [hub], "cut off from the standbys": standbys}.get(way, [hub, *standbys])
        machine.cut(others, {"deaf": ("INPUT",), "mute": ("OUTPUT",)}.get(way, ("INPUT", "OUTPUT")))
        cut = time.monotonic()
        if way == HANGS:
            machine.runs(commit_locally)(cluster.state, primary, control)
        if WAYS[way]:
            _, promotion = cluster.wait_for_promotion(primary)
            wait_until("a write after the promotion", lambda: load.first_after(promotion), 60, every=0.05)
            marker = wait_until("a marker", lambda: create_pet(cluster.state, "marker"), 30)
            for each in filter(None, (checked, unchecked)):
                each.marker = marker, time.monotonic()
        # Reads and writes on the wrong side, while both sides are alive. In the control, reads are stale for longer.
        time.sleep(random.uniform(1, 3) + (STALE if way == HANGS else 3))
        end = time.monotonic()
        machine.heal()
        if way == HANGS:
            send([primary.patroni.pid], signal.SIGCONT)
    # Cut off from etcd only, the process follows the new primary.
    may_write = way == "cut off from etcd"
    return Found(
        way,
        sum(cut < at < end for at in checked.tried),
        # A write that waits when the partition ends may succeed.
        0 if may_write else sum(cut < at and response < end for at, response in checked.acknowledged),
        checked.stale(end),
        unchecked.stale(end) if unchecked else 0,
        max((at for at, _ in checked.reads if at < end), default=cut) - cut,
    )


class Clients(contextlib.ExitStack):
    """Clients on one machine: one that reads, and four that write if there is a ledger."""

    WRITERS = 4

    def __init__(self, state, machine, port, ledger=None):
        super().__init__()
        self._port, self._ledger = port, ledger
        self._key = state.key_file.read_text().strip()
        self._ended = threading.Event()
        # The id and the time of an animal that the other side has acknowledged.
        self.marker = None
        # Times of writes, and of acknowledged writes and their responses.
        self.tried, self.acknowledged = [], []
        # The time of each successful read, and by how much the marker was older if the read did not contain it.
        self.reads = []
        clients = [self._read_on, *[self._write_on] * (self.WRITERS if ledger else 0)]
        for client in [threading.Thread(target=machine.runs(each)) for each in clients]:
            client.start()
            self.callback(client.join)
        # Runs before the others.
        self.callback(self._ended.set)

    def stale(self, end):
        """Returns the time from the acknowledgement on the other side to the last read that lacks it."""
        return max((behind for at, behind in self.reads if at < end), default=0)

    def _write_on(self):
        with contextlib.closing(connection_to(self._port)) as connection:
            while not self._ended.wait(0.05):
                begin = time.monotonic()
                self.tried.append(begin)
                if write(connection, self._key, self._ledger):
                    self.acknowledged.append((begin, time.monotonic()))

    def _read_on(self):
        while not self._ended.wait(0.02):
            begin, marker = time.monotonic(), self.marker
            path = f"/v1/pets?limit=1&after={marker[0] - 1}" if marker else "/v1/pets?limit=1"
            with contextlib.suppress(OSError):
                status, body = request(self._port, path, key=self._key, timeout=5)
                if status == 200:
                    lacks = marker and [each["id"] for each in json.loads(body)] != [marker[0]]
                    self.reads.append((begin, begin - marker[1] if lacks else 0))


@contextlib.contextmanager
def without_flag(state, machine):
    """Runs another petstore process on the machine, without --require-standbys, and returns the port of its store."""
    # Not a port that another machine uses: connections to it are sent there.
    unused = max(state.ports.values()) + 1
    state.ports.update({f"control_{listener}": unused + number for number, listener in enumerate(LISTENERS)})
    process = Petstore(state, "control")
    try:
        machine.runs(process.start)()
        wait_until("a petstore process without the flag", machine.runs(process.ready), 30)
        yield process.ports["store"]
    finally:
        process.process.stop(5)


def commit_locally(state, primary, ledger):
    """The control: writes as a client that does not wait for the standbys."""
    for _ in range(10):
        name = ledger.new_name()
        text = f"SET synchronous_commit = local; INSERT INTO pets (name, category_id, status) VALUES ('{name}', 1, 0)"
        [[id]] = sql(state, primary.port, f"{text} RETURNING id", user="petstore")
        ledger.acknowledge(name, id)
