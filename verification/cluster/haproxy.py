"""HAProxy, with one address for the PostgreSQL servers and one for the petstore processes."""

import csv
import io
import socket

from .processes import Process, wait_until
from .state import MEMBERS, PETSTORES

CONFIG = """\
global
    stats socket ipv4@127.0.0.1:{ports[haproxy_stats]} level user

defaults
    timeout connect 2s
    timeout client 1m
    timeout server 1m
    timeout check 1s
    retries 3
    option redispatch 1
    default-server inter 500ms fastinter 250ms downinter 250ms fall 2 rise 1

# Database connections may be idle for a long time. Patroni responds to OPTIONS like to GET, but without a body.
# Connections to a former primary are closed, because it may hang.
listen primary
    bind 127.0.0.1:{ports[primary]}
    timeout client 1h
    timeout server 1h
    option httpchk OPTIONS /primary
    default-server on-marked-down shutdown-sessions
{primary}

listen standbys
    bind 127.0.0.1:{ports[standbys]}
    timeout client 1h
    timeout server 1h
    balance leastconn
    option httpchk OPTIONS /replica
    default-server on-marked-down shutdown-sessions
{primary}
"""

# A process that is not ready gets no new requests, and completes its requests in flight. If no process is ready, all
# live ones get requests, because their errors have the API's JSON body, unlike HAProxy's own errors.
# A request is retried on another process only if it was not sent to the first: writes are never sent twice.
LISTENER = """
frontend {listener}
    bind 127.0.0.1:{port}
    mode http
    use_backend {listener} if {{ nbsrv({listener}) gt 0 }}
    default_backend {listener}_alive

backend {listener}
    mode http
    balance leastconn
    option httpchk GET /readyz
    default-server fall 1
{servers}

backend {listener}_alive
    mode http
    balance leastconn
    option httpchk GET /livez
{servers}
"""


def config(ports):
    def listener(name):
        petstores = ((each, ports[f"{each}_{name}"], ports[f"{each}_{name}"]) for each in PETSTORES)
        return LISTENER.format(listener=name, port=ports[name], servers=servers(petstores))

    primary = servers((name, ports[name], ports[f"{name}_api"]) for name in MEMBERS)
    return CONFIG.format(ports=ports, primary=primary) + listener("store") + listener("messages")


class Haproxy:
    def __init__(self, state):
        self._state = state
        self.process = Process(state.folder, "haproxy")

    def start(self):
        file = self._state.config("haproxy.cfg", config(self._state.ports))
        self.process.start([self._state.programs.haproxy, "-db", "-f", file], self._state.user)

    def wait(self):
        wait_until("HAProxy", self.up, 10)

    def up(self):
        """Returns the servers that are up, by listener."""
        found = {}
        try:
            with socket.create_connection(("127.0.0.1", self._state.ports["haproxy_stats"]), timeout=2) as stats:
                stats.sendall(b"show stat\n")
                with stats.makefile() as lines:
                    rows = list(csv.DictReader(io.StringIO(lines.read().removeprefix("# "))))
        except OSError:
            return found
        for row in rows:
            if row["svname"] not in ("FRONTEND", "BACKEND"):
                found.setdefault(row["pxname"], [])
                if row["status"].startswith("UP"):
                    found[row["pxname"]].append(row["svname"])
        return found


def servers(triples):
    return "\n".join(f"    server {name} 127.0.0.1:{port} check port {check}" for name, port, check in triples)
