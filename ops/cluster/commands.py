"""The commands of scripts/cluster."""

import argparse
import sys
import time
from pathlib import Path

from . import http, petstore
from .cluster import Cluster, remove, say
from .packages import programs
from .processes import Failed, User, wait_until
from .state import State

DESCRIPTION = """\
A real petstore cluster on this machine, on loopback and in a folder of its own: etcd, three PostgreSQL 15 servers
under Patroni with synchronous standbys, HAProxy, three petstore processes. docs/scale-out.md explains it."""


def main():
    options = parse()
    try:
        options.command(options)
    except Failed as error:
        sys.exit(f"cluster: {error}")
    except KeyboardInterrupt:
        sys.exit("cluster: interrupted; `scripts/cluster down` takes down what is there")


def parse():
    parser = argparse.ArgumentParser(
        prog="scripts/cluster", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function, name):
        added = commands.add_parser(name, help=function.__doc__.splitlines()[0], description=function.__doc__)
        added.set_defaults(command=function)
        default = petstore.ROOT / "target/cluster"
        added.add_argument("--dir", type=Path, default=default, help="the cluster's folder (default: target/cluster)")
        return added

    starting = command(up, "up")
    starting.add_argument("--petstore", type=Path, metavar="FILE", help="a built petstore (default: build a release)")
    starting.add_argument("--no-petstore", action="store_true", help="only the database and HAProxy")
    starting.add_argument(
        "--through-haproxy", action="store_true", help="petstore reaches the primary through HAProxy, not by itself"
    )
    command(status, "status").add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    killing = command(kill_primary, "kill-primary")
    killing.add_argument(
        "--how", choices=("machine", "postgres", "pause"), default="machine",
        help="kill -9 of PostgreSQL and Patroni (default), of PostgreSQL alone, or stop both as a hung machine would",
    )
    command(stop_standby, "stop-standby")
    command(heal, "heal")
    command(down, "down")
    return parser.parse_args()


def up(options):
    """Start everything, wait until it is healthy, and print its addresses."""
    begin = time.monotonic()
    found = programs()
    state = State.make(options.dir, User.current_or_postgres(), found, options.through_haproxy)
    try:
        program = None if options.no_petstore else options.petstore or petstore.build()
        Cluster(state).start(program)
    except Failed as error:
        raise Failed(f"{error}\nwhat has started is still there; `scripts/cluster down` takes it down") from None
    say(f"healthy after {time.monotonic() - begin:.0f} s\n")
    print_addresses(state)


def print_addresses(state):
    ports = state.ports
    rows = [
        ("PostgreSQL, the primary", f"127.0.0.1:{ports['primary']}", "HAProxy: follows Patroni's /primary"),
        ("PostgreSQL, the standbys", f"127.0.0.1:{ports['standbys']}", "HAProxy: follows Patroni's /replica"),
        ("etcd", f"127.0.0.1:{ports['etcd']}", ""),
    ]
    for member in Cluster(state).members:
        rows.append((member.name, f"127.0.0.1:{member.port}", f"its Patroni: 127.0.0.1:{member.api_port}"))
    if state.key_file.exists():
        rows[:0] = [
            ("petstore, the store", f"http://127.0.0.1:{ports['store']}/v1", "HAProxy: follows /readyz"),
            ("petstore, messages", f"http://127.0.0.1:{ports['messages']}/v1", "HAProxy: follows /readyz"),
        ]
        for each in Cluster(state).petstores:
            doors = ", ".join(f"{door} {port}" for door, port in each.ports.items())
            rows.append((each.name, f"127.0.0.1, {doors}", ""))
    print_table(("what", "address", ""), rows)
    if state.key_file.exists():
        print(f"\nKEY={state.key_file.read_text().strip()}")
        print(f'curl -s "http://127.0.0.1:{ports["store"]}/v1/pets" -H "Authorization: Bearer $KEY"')
    print(f"\nlogs: {state.folder / 'log'}")


def status(options):
    """Who leads, who lags, who is ready; exit status 1 where anything is wrong."""
    cluster = Cluster.open(options.dir)
    while True:
        view, up = cluster.view(), cluster.haproxy.up()
        rows = []
        for member in cluster.members:
            said = view.get(member.name, {})
            lag = said.get("lag", "-")
            sync = "yes" if said.get("role") == "sync_standby" else "-"
            rows.append((member.name, member.condition(), said.get("role", "-"), said.get("state", "-"),
                         said.get("timeline", "-"), lag, sync))
        print_table(("server", "processes", "role", "state", "timeline", "lag (bytes)", "synchronous"), rows)
        print(f"\netcd: {'healthy' if cluster.etcd.healthy() else 'does not answer'}")
        listeners = (f"{name} -> {', '.join(servers) or 'none'}" for name, servers in up.items())
        print(f"HAProxy: {'; '.join(listeners) or 'does not answer'}")
        if cluster.has_petstore():
            rows = [(each.name, "runs" if each.process.pid else "down", "ready" if each.ready() else "not ready")
                    for each in cluster.petstores]
            print()
            print_table(("process", "", "/readyz"), rows)
        ailments = cluster.ailments()
        print(f"\n{'; '.join(ailments) or 'healthy'}")
        if not options.watch:
            sys.exit(1 if ailments else 0)
        time.sleep(1)
        print("\033[2J\033[H", end="")


def kill_primary(options):
    """Kill the primary, and say how long it took until another was promoted and writes worked again."""
    cluster = Cluster.open(options.dir)
    primary = wait_until("a primary", cluster.leader, 5)
    break_member(primary, options.how)
    begin = time.monotonic()
    say(f"{primary.name}, the primary: {FAULTS[options.how]}")
    promoted, promotion = cluster.wait_for_promotion(primary)
    print(f"{promoted.name} was promoted after {promotion - begin:.1f} s")
    if cluster.has_petstore():
        wait_until("a write through petstore", lambda: write(cluster.state), 60)
        print(f"a write through petstore worked {time.monotonic() - promotion:.1f} s after that")
    print("`scripts/cluster heal` brings the old primary back as a standby")


FAULTS = {
    "machine": "PostgreSQL and Patroni killed",
    "postgres": "PostgreSQL killed, Patroni lives",
    "pause": "PostgreSQL and Patroni stopped where they are, connections open",
}


def break_member(member, how):
    match how:
        case "machine":
            member.kill()
        case "postgres":
            member.kill(patroni=False)
        case "pause":
            member.pause()


def write(state):
    """Whether an animal can be added."""
    key = state.key_file.read_text().strip()
    body = {"name": "after the fail-over", "categoryId": 1}
    return http.request(state.ports["store"], "/v1/pets", method="POST", body=body, key=key, timeout=5)[0] == 201


def stop_standby(options):
    """Stop a synchronous standby, in order; Patroni then asks only the other one for its confirmation."""
    cluster = Cluster.open(options.dir)
    standbys = wait_until("a synchronous standby", cluster.sync_standbys, 5)
    begin = time.monotonic()
    standbys[0].stop()
    say(f"{standbys[0].name}, a synchronous standby, is stopped")
    if not any(member.condition() == "running" for member in cluster.standbys()):
        print("no standby is left: writes wait, since the replication is strictly synchronous")
        return
    left = wait_until("the other synchronous standby", cluster.sync_standbys, 30)
    print(f"{left[0].name} is the synchronous standby; the change took {time.monotonic() - begin:.1f} s")


def heal(options):
    """Start what is missing, wake what is paused, and wait until all is healthy."""
    cluster = Cluster.open(options.dir)
    begin = time.monotonic()
    cluster.heal()
    print(f"healthy after {time.monotonic() - begin:.1f} s")


def down(options):
    """Stop everything and remove the folder, also where the start had not come to its end."""
    remove(options.dir.resolve())


def print_table(head, rows):
    table = [tuple(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
