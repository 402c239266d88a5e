"""The commands of scripts/cluster."""

import argparse
import sys
import time
from pathlib import Path

from . import petstore
from .cluster import Cluster, remove, say
from .packages import programs
from .processes import Failed, User, wait_until
from .state import State

DESCRIPTION = """\
Runs a petstore cluster on this machine, on loopback and in its own folder: etcd, three PostgreSQL 15 servers with
Patroni and synchronous standbys, HAProxy, and three petstore processes. See docs/scale-out.md."""


def main():
    options = parse()
    try:
        options.command(options)
    except Failed as error:
        sys.exit(f"cluster: {error}")
    except KeyboardInterrupt:
        sys.exit("cluster: interrupted; run `scripts/cluster down` to stop the running processes")


def parse():
    parser = argparse.ArgumentParser(
        prog="scripts/cluster", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function, name):
        added = commands.add_parser(name, help=function.__doc__.splitlines()[0], description=function.__doc__)
        added.set_defaults(command=function)
        default = petstore.ROOT / "target/cluster"
        added.add_argument("--dir", type=Path, default=default, help="folder of the cluster (default: target/cluster)")
        return added

    starting = command(up, "up")
    starting.add_argument("--petstore", type=Path, metavar="FILE", help="petstore program (default: build a release)")
    starting.add_argument("--no-petstore", action="store_true", help="start only the database and HAProxy")
    starting.add_argument(
        "--through-haproxy", action="store_true", help="connect petstore to the primary through HAProxy"
    )
    command(status, "status")
    killing = command(kill_primary, "kill-primary")
    killing.add_argument(
        "--how", choices=("machine", "postgres", "pause"), default="machine",
        help="kill -9 PostgreSQL and Patroni (default), kill -9 only PostgreSQL, or pause both like a hung machine",
    )
    command(heal, "heal")
    command(down, "down")
    return parser.parse_args()


def up(options):
    """Start the cluster, wait until it is healthy, and print its addresses."""
    begin = time.monotonic()
    found = programs()
    state = State.make(options.dir, User.current_or_postgres(), found, options.through_haproxy)
    try:
        program = None if options.no_petstore else options.petstore or petstore.build()
        Cluster(state).start(program)
    except Failed as error:
        raise Failed(f"{error}\nrun `scripts/cluster down` to stop the running processes") from None
    say(f"healthy after {time.monotonic() - begin:.0f} s\n")
    print_addresses(state)


def print_addresses(state):
    ports = state.ports
    rows = [
        ("PostgreSQL primary", f"127.0.0.1:{ports['primary']}", "HAProxy, checks Patroni's /primary"),
        ("PostgreSQL standbys", f"127.0.0.1:{ports['standbys']}", "HAProxy, checks Patroni's /replica"),
        ("etcd", f"127.0.0.1:{ports['etcd']}", ""),
    ]
    for member in Cluster(state).members:
        rows.append((member.name, f"127.0.0.1:{member.port}", f"Patroni: 127.0.0.1:{member.api_port}"))
    if state.key_file.exists():
        rows[:0] = [
            ("store API", f"http://127.0.0.1:{ports['store']}/v1", "HAProxy, checks /readyz"),
            ("messages API", f"http://127.0.0.1:{ports['messages']}/v1", "HAProxy, checks /readyz"),
        ]
        for each in Cluster(state).petstores:
            listeners = ", ".join(f"{listener} {port}" for listener, port in each.ports.items())
            rows.append((each.name, f"127.0.0.1, {listeners}", ""))
    print_table(("service", "address", ""), rows)
    if state.key_file.exists():
        print(f"\nKEY={state.key_file.read_text().strip()}")
        print(f'curl -s "http://127.0.0.1:{ports["store"]}/v1/pets" -H "Authorization: Bearer $KEY"')
    print(f"\nlogs: {state.folder / 'log'}")


def status(options):
    """Print roles, replication lag and readiness. The exit status is 1 if there is a problem."""
    cluster = Cluster.open(options.dir)
    view, up = cluster.view(), cluster.haproxy.up()
    rows = []
    for member in cluster.members:
        said = view.get(member.name, {})
        sync = "yes" if said.get("role") == "sync_standby" else "-"
        rows.append((member.name, member.condition(), *(said.get(of, "-") for of in ("role", "state", "timeline", "lag")), sync))
    print_table(("server", "processes", "role", "state", "timeline", "lag (bytes)", "synchronous"), rows)
    print(f"\netcd: {'healthy' if cluster.etcd.healthy() else 'does not respond'}")
    listeners = (f"{name} -> {', '.join(servers) or 'none'}" for name, servers in up.items())
    print(f"HAProxy: {'; '.join(listeners) or 'does not respond'}\n")
    if cluster.has_petstore():
        print_table(("process", "", "/readyz"), [
            (each.name, "runs" if each.process.pid else "down", "ready" if each.ready() else "not ready")
            for each in cluster.petstores
        ])
    problems = cluster.problems()
    print(f"\n{'; '.join(problems) or 'healthy'}")
    sys.exit(1 if problems else 0)


def kill_primary(options):
    """Kill the primary, and print the time until a standby was promoted and writes worked again."""
    cluster = Cluster.open(options.dir)
    primary = wait_until("a primary", cluster.leader, 5)
    break_member(primary, options.how)
    begin = time.monotonic()
    say(f"{primary.name}, the primary: {FAULTS[options.how]}")
    promoted, promotion = cluster.wait_for_promotion(primary)
    print(f"{promoted.name} was promoted after {promotion - begin:.1f} s")
    if cluster.has_petstore():
        wait_until("a write through petstore", lambda: petstore.create_pet(cluster.state, "after the fail-over"), 60)
        print(f"a write through petstore worked {time.monotonic() - promotion:.1f} s after that")
    print("run `scripts/cluster heal` to restart the old primary as a standby")


FAULTS = {
    "machine": "PostgreSQL and Patroni killed",
    "postgres": "PostgreSQL killed, Patroni running",
    "pause": "PostgreSQL and Patroni paused, connections open",
}


def break_member(member, how):
    match how:
        case "machine":
            member.kill()
        case "postgres":
            member.kill(patroni=False)
        case "pause":
            member.pause()


def heal(options):
    """Start stopped processes, resume paused ones, and wait until the cluster is healthy."""
    cluster = Cluster.open(options.dir)
    begin = time.monotonic()
    cluster.heal()
    print(f"healthy after {time.monotonic() - begin:.1f} s")


def down(options):
    """Stop the cluster and remove its folder, even if it was started only partially."""
    remove(options.dir.resolve())


def print_table(head, rows):
    table = [tuple(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


if __name__ == "__main__":
    main()
