"""A PostgreSQL server and the Patroni process that manages it. In production, each has its own machine."""

import contextlib
import json
import signal
from pathlib import Path

from . import http
from .processes import Failed, Process, becomes, send, stat, tree
from .state import MEMBERS

# docs/consistency.md explains these settings.
CLUSTER_SETTINGS = {
    "ttl": 20,
    "loop_wait": 1,
    "retry_timeout": 5,
    "maximum_lag_on_failover": 1_048_576,
    "primary_start_timeout": 0,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    # With 1, the other standby may be ahead of the promoted one, and writes wait while it is rewound.
    "synchronous_node_count": 2,
    "postgresql": {
        "use_pg_rewind": True,
        "remove_data_directory_on_rewind_failure": True,
        "remove_data_directory_on_diverged_timelines": True,
        "parameters": {
            "max_connections": 100,
            "shared_buffers": "64MB",
            "wal_keep_size": "256MB",
            "synchronous_commit": "on",
            "wal_retrieve_retry_interval": "500ms",
            "wal_sender_timeout": "5s",
            "wal_receiver_timeout": "5s",
        },
    },
}


class Member:
    """A server with its Patroni, which fail together like a machine."""

    def __init__(self, state, name):
        self._state, self.name = state, name
        self.port, self.api_port = state.ports[name], state.ports[f"{name}_api"]
        self.data = state.folder / "data" / name
        self.patroni = Process(state.folder, name)

    def start(self):
        # Patroni reads YAML, a superset of JSON.
        config = self._state.config(f"{self.name}.yml", json.dumps(self._config(), indent=1))
        self.patroni.start([self._state.programs.patroni, config], self._state.user)

    def _config(self):
        state = self._state
        passwords = state.passwords
        etcd = f"127.0.0.1:{state.ports['etcd']}"
        # The servers listen on loopback. A test forwards connections to it from other network namespaces.
        accounts = [f"host {who} samenet scram-sha-256" for who in ("all all", "replication replicator")]
        return {
            "scope": "petstore",
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.api_port}",
                "connect_address": f"127.0.0.1:{self.api_port}",
                "authentication": {"username": "patroni", "password": passwords["patroni"]},
            },
            # Version 2 of etcd's protocol. With `etcd3`, a leader of Patroni 3.0.2 that resumes after a hang overwrites
            # its successor's lease, and writes acknowledged meanwhile are rewound. Fixed in 3.0.3.
            "etcd": {"hosts": [etcd]},
            "bootstrap": {
                "dcs": CLUSTER_SETTINGS,
                "initdb": ["data-checksums", {"encoding": "UTF8"}, {"locale": "C.UTF-8"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data),
                "bin_dir": state.programs.postgresql_bin,
                "pgpass": str(state.folder / "run" / f"{self.name}.pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres", "password": passwords["postgres"]},
                    "replication": {"username": "replicator", "password": passwords["replicator"]},
                },
                "pg_hba": accounts,
                "parameters": {
                    # No Unix sockets, because their path is limited to 107 characters.
                    "unix_socket_directories": "",
                    "log_line_prefix": "%m [%p] ",
                },
            },
        }

    def answers(self, path):
        """Returns whether Patroni responds 200, like HAProxy's check."""
        try:
            return http.request(self.api_port, path)[0] == 200
        except OSError:
            return False

    def configure(self, settings):
        """Changes settings of the cluster in etcd. Each server applies them in its next loop."""
        user = ("patroni", self._state.passwords["patroni"])
        status, body = http.request(self.api_port, "/config", method="PATCH", body=settings, user=user, timeout=5)
        if status != 200:
            raise Failed(f"Patroni rejected {settings}: {status} {body.decode()}")

    def postmaster(self):
        """Returns the pid of PostgreSQL if it is running. A killed server leaves its pid file behind."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            if str(self.data) in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                return pid
        return None

    def processes(self, patroni=True):
        roots = [self.postmaster(), self.patroni.pid if patroni else None]
        return sorted(set(tree(pid for pid in roots if pid)))

    def kill(self, patroni=True):
        """Kills all processes with SIGKILL, like a power failure, or only PostgreSQL."""
        victims = self.pause(patroni)
        send(victims, signal.SIGKILL)
        if not becomes(lambda: all((stat(pid) or "Z")[0] == "Z" for pid in victims), 10):
            raise Failed(f"{self.name} is still running after SIGKILL")

    def pause(self, patroni=True):
        """Pauses all processes, like a hung machine. Connections stay open."""
        stopped = []
        # Repeats until there are no new processes, because running ones may start others.
        while fresh := [pid for pid in self.processes(patroni) if pid not in stopped]:
            send(fresh, signal.SIGSTOP)
            stopped += fresh
        # The signal takes effect a little after it is sent.
        if not becomes(lambda: all((stat(pid) or "Z")[0] in "TZ" for pid in stopped), 5):
            raise Failed(f"{self.name} is still running after SIGSTOP")
        return stopped

    def resume(self):
        send(self.processes(), signal.SIGCONT)

    def stop(self, seconds=20):
        """Stops Patroni, which shuts down PostgreSQL. Kills remaining processes."""
        self.resume()
        self.patroni.stop(seconds)
        if self.postmaster():
            self.kill()

    def condition(self):
        """Returns `running`, `paused`, `no Patroni`, `no PostgreSQL` or `down`, from the state of the processes."""
        patroni, postmaster = self.patroni.pid, self.postmaster()
        if "T" in [(stat(pid) or "Z")[0] for pid in (patroni, postmaster) if pid]:
            return "paused"
        return {(True, True): "running", (False, True): "no Patroni", (True, False): "no PostgreSQL"}.get(
            (bool(patroni), bool(postmaster)), "down"
        )


def members(state):
    return [Member(state, name) for name in MEMBERS]
