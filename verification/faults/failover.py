"""Promise 4: killing the primary under load loses no acknowledged write."""

import contextlib
import statistics
import time

from cluster.commands import FAULTS, break_member
from cluster.processes import Failed, wait_until

from .ledger import Ledger
from .load import Load, rows
from .trial import Result

WITHIN = 10
WAYS = tuple(FAULTS)


def run(row, trial):
    cluster, random, rounds = trial.cluster(), trial.random(row.number), trial.rounds(row.rounds)
    ledger, failures = Ledger(f"row4-{trial.seed}"), []
    processes = [each.process.pid for each in cluster.petstores]
    to_promotion, to_write = {way: [] for way in WAYS}, []
    with Load(cluster.state, ledger) as load, noted(failures):
        for number in range(1, rounds + 1):
            way = WAYS[number % len(WAYS)]
            promotion, back = fail_over(cluster, load, random, way)
            to_promotion[way].append(promotion)
            to_write.append(back)
            trial.say(
                f"fail-over {number} of {rounds}, {way}: promotion after {promotion:.1f} s, writes {back:.1f} s later; "
                f"{len(ledger.acknowledged)} acknowledged, {len(ledger.unknown)} unknown, {len(ledger.refused)} refused"
            )
            cluster.heal()
    if processes != [each.process.pid for each in cluster.petstores]:
        failures.append("a petstore process ended or was started again")
    if late := [f"{back:.1f} s" for back in to_write if back > WITHIN]:
        failures.append(f"writes came back later than {WITHIN} s after the promotion: {', '.join(late)}")
    # Compared even if a round failed, because lost writes matter more.
    differences = ledger.compare(rows(cluster, ledger.prefix))
    failures += differences.failures()
    if failures:
        trial.say("no control after a failure")
        return Result(f"{len(to_write)} failovers, {len(differences.lost)} lost", failures)
    control = lost_without_synchronous_standby(trial, cluster)
    if not control:
        failures.append("the control lost nothing either: the test can't see a loss")
    ways = ", ".join(f"{way} {statistics.median(times):.1f} s" for way, times in to_promotion.items() if times)
    return Result(
        f"{rounds} failovers, {len(ledger.acknowledged)} acknowledged, {len(differences.lost)} lost, "
        f"{len(differences.doubled)} doubled, {len(ledger.unknown)} unknown ({differences.settled} of them there), "
        f"{len(ledger.refused)} refused ({len(differences.present_though_refused)} of them there); "
        f"writes back {statistics.median(to_write):.1f} s (median), {max(to_write):.1f} s (most) after the promotion; "
        f"promotion after (median): {ways}; without synchronous replication {control} were lost",
        failures,
    )


@contextlib.contextmanager
def noted(failures):
    """Records a failure and continues."""
    try:
        yield
    except Failed as error:
        failures.append(str(error))


def fail_over(cluster, load, random, way):
    """Breaks the primary at a random time. Returns the seconds until the promotion, and from there until a write."""
    begin = time.monotonic()
    wait_until("writes before the fault", lambda: load.first_after(begin), 30)
    time.sleep(random.uniform(0.5, 2))
    primary = wait_until("a primary", cluster.leader, 10)
    break_member(primary, way)
    fault = time.monotonic()
    _, promotion = cluster.wait_for_promotion(primary)
    wait_until("a write after the promotion", lambda: load.first_after(promotion), 120, every=0.05)
    # Some more writes while the old primary is down.
    time.sleep(random.uniform(0.2, 1))
    return promotion - fault, load.first_after(promotion) - promotion


def lost_without_synchronous_standby(trial, cluster):
    """The control: kills the primary under asynchronous replication with stopped standbys. Returns the lost writes."""
    trial.say("control: the same without synchronous replication")
    cluster.set_synchronous(False)
    primary = wait_until("a primary", cluster.leader, 10)
    # Otherwise Patroni promotes no standby that lags this far.
    primary.configure({"maximum_lag_on_failover": 2**40})
    standbys, ledger = cluster.standbys(), Ledger(f"control4-{trial.seed}")
    with Load(cluster.state, ledger) as load:
        for standby in standbys:
            standby.pause()
        begin = time.monotonic()
        wait_until("writes with standbys that hang", lambda: load.first_after(begin), 30)
        time.sleep(2)
        primary.kill()
        # Restarts the standbys, so that data in their socket buffers is lost.
        for standby in standbys:
            standby.kill()
            standby.start()
        cluster.wait_for_promotion(primary)
    cluster.heal()
    lost = ledger.compare(rows(cluster, ledger.prefix)).lost
    cluster.leader().configure({"maximum_lag_on_failover": 1_048_576})
    cluster.set_synchronous(True)
    return len(lost)
