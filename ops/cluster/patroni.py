"""A PostgreSQL server and the Patroni that runs it: what is a machine of its own in production."""

import contextlib
import json
import signal
from pathlib import Path

from . import http
from .processes import Failed, Process, becomes, send, stat, tree
from .state import MEMBERS

# docs/scale-out.md says what each of these is for.
CLUSTER_SETTINGS = {
    "ttl": 20,
    "loop_wait": 1,
    "retry_timeout": 5,
    "maximum_lag_on_failover": 1_048_576,
    "primary_start_timeout": 0,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    # With one, the other standby may be ahead of the one that is promoted, and writes wait while it is rewound.
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
    """One server with its Patroni, as a machine that can fail."""

    def __init__(self, state, name):
        self._state, self.name = state, name
        self.port, self.api_port = state.ports[name], state.ports[f"{name}_api"]
        self.data = state.folder / "data" / name
        self.patroni = Process(state.folder, name)

    def start(self):
        # JSON is YAML, which Patroni reads.
        config = self._state.config(f"{self.name}.yml", json.dumps(self._config(), indent=1))
        self.patroni.start([self._state.programs.patroni, config], self._state.user)

    def _config(self):
        state = self._state
        passwords = state.passwords
        etcd = f"127.0.0.1:{state.ports['etcd']}"
        accounts = [f"host {who} 127.0.0.1/32 scram-sha-256" for who in ("all all", "replication replicator")]
        return {
            "scope": "petstore",
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.api_port}",
                "connect_address": f"127.0.0.1:{self.api_port}",
                "authentication": {"username": "patroni", "password": passwords["patroni"]},
            },
            # By etcd's second protocol: with `etcd3`, a leader of Patroni 3.0.2 that has hung and wakes overwrites its
            # successor's lease unseen, and what was acknowledged meanwhile is rewound. 3.0.3 has that mended.
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
                    # A socket's path may have 107 characters, fewer than a folder's; loopback has no such limit.
                    "unix_socket_directories": "",
                    "log_line_prefix": "%m [%p] ",
                },
            },
        }

    # What it says of itself.

    def answers(self, path):
        """Whether Patroni answers 200, as HAProxy asks."""
        try:
            return http.request(self.api_port, path)[0] == 200
        except OSError:
            return False

    def configure(self, settings):
        """Changes settings of the whole cluster, in etcd; every server takes them over in its next round."""
        user = ("patroni", self._state.passwords["patroni"])
        status, body = http.request(self.api_port, "/config", method="PATCH", body=settings, user=user, timeout=5)
        if status != 200:
            raise Failed(f"Patroni refused {settings}: {status} {body.decode()}")

    # What can happen to it.

    def postmaster(self):
        """The pid of its PostgreSQL while that lives; the file alone may be left of one that was killed."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            if str(self.data) in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                return pid
        return None

    def processes(self, patroni=True):
        roots = [self.postmaster(), self.patroni.pid if patroni else None]
        return sorted(set(tree(pid for pid in roots if pid)))

    def kill(self, patroni=True):
        """kill -9, as where the machine loses its power; or of PostgreSQL alone."""
        victims = self.pause(patroni)
        send(victims, signal.SIGKILL)
        if not becomes(lambda: all((stat(pid) or "Z")[0] == "Z" for pid in victims), 10):
            raise Failed(f"{self.name} outlived kill -9")

    def pause(self, patroni=True):
        """Stops every process of it, as where a machine hangs: its connections stay open and say nothing."""
        stopped = []
        # Until no new ones turn up: one that runs may start others meanwhile.
        while fresh := [pid for pid in self.processes(patroni) if pid not in stopped]:
            send(fresh, signal.SIGSTOP)
            stopped += fresh
        # The signal takes effect a little after it is sent.
        if not becomes(lambda: all((stat(pid) or "Z")[0] in "TZ" for pid in stopped), 5):
            raise Failed(f"{self.name} goes on after SIGSTOP")
        return stopped

    def resume(self):
        send(self.processes(), signal.SIGCONT)

    def stop(self, seconds=20):
        """An orderly end: Patroni stops its PostgreSQL. Whatever is left then is killed."""
        self.resume()
        self.patroni.stop(seconds)
        if self.postmaster():
            self.kill()

    def condition(self):
        """`running`, `paused`, `no Patroni`, `no PostgreSQL` or `down`, from the processes alone."""
        patroni, postmaster = self.patroni.pid, self.postmaster()
        if "T" in [(stat(pid) or "Z")[0] for pid in (patroni, postmaster) if pid]:
            return "paused"
        return {(True, True): "running", (False, True): "no Patroni", (True, False): "no PostgreSQL"}.get(
            (bool(patroni), bool(postmaster)), "down"
        )


def members(state):
    return [Member(state, name) for name in MEMBERS]
