"""etcd, in which Patroni stores the leader. One process here; in production, three on separate machines."""

import json

from . import http
from .processes import Process, wait_until


class Etcd:
    def __init__(self, state):
        self._state = state
        self.port, self._peer_port = state.ports["etcd"], state.ports["etcd_peer"]
        self.process = Process(state.folder, "etcd")

    def start(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self._peer_port))
        self.process.start(
            [
                self._state.programs.etcd, "--name=etcd", f"--data-dir={self._state.folder / 'data' / 'etcd'}",
                f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=etcd={peer}", "--log-level=warn", "--logger=zap",
                # Member._config explains why Patroni uses version 2.
                "--enable-v2=true",
            ],
            self._state.user,
        )

    def wait(self):
        wait_until("etcd", self.healthy, 20)

    def healthy(self):
        try:
            status, body = http.request(self.port, "/health")
        except OSError:
            return False
        return status == 200 and json.loads(body).get("health") == "true"
