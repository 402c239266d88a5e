"""Starts, monitors, heals and stops the cluster."""

import json
import os
import shutil
import sys
import time

from . import database, http, petstore
from .etcd import Etcd
from .haproxy import Haproxy
from .patroni import members
from .processes import Failed, wait_until
from .state import FILE, PETSTORES, State


def say(text):
    print(text, file=sys.stderr, flush=True)


class Cluster:
    def __init__(self, state):
        self.state = state
        self.etcd, self.haproxy = Etcd(state), Haproxy(state)
        self.members = members(state)
        self.petstores = [petstore.Petstore(state, name) for name in PETSTORES]

    @classmethod
    def open(cls, folder):
        return cls(State.read(folder))

    def view(self):
        """Returns Patroni's view of the cluster: name -> role, state, lag, ... Empty if no Patroni responds."""
        for member in self.members:
            if member.condition() in ("running", "no PostgreSQL"):
                try:
                    status, body = http.request(member.api_port, "/cluster")
                except OSError:
                    continue
                if status == 200:
                    return {each["name"]: each for each in json.loads(body)["members"]}
        return {}

    def leader(self):
        """Returns the server whose Patroni reports it as the primary, or None."""
        return next((member for member in self.members if member.answers("/primary")), None)

    def sync_standbys(self):
        return [member for member in self.members if member.answers("/synchronous")]

    def standbys(self):
        leader = self.leader()
        return [member for member in self.members if leader and member.name != leader.name]

    def wait_for_promotion(self, old, seconds=90):
        """Returns the server that was promoted in place of `old`, and the time (monotonic)."""
        others = [member for member in self.members if member.name != old.name]

        def promoted():
            return next(((member, time.monotonic()) for member in others if member.answers("/primary")), None)

        return wait_until("another server's promotion", promoted, seconds, every=0.05)

    def problems(self):
        """Returns descriptions of all problems. Empty if the cluster is healthy."""
        found = []
        if not self.etcd.healthy():
            found.append("etcd does not respond")
        conditions = {member.name: member.condition() for member in self.members}
        found += [f"{name} is {condition}" for name, condition in conditions.items() if condition != "running"]
        view = self.view()
        roles = sorted(each["role"] for each in view.values() if each["state"] in ("running", "streaming"))
        if roles != ["leader", *[self._standbys_role(self.synchronous())] * 2]:
            found.append(f"Patroni's roles are {', '.join(roles) or 'unknown'}")
        up = self.haproxy.up()
        found += [
            f"HAProxy: {len(up.get(listener, []))} of {count} {listener} servers are up"
            for listener, count in {"primary": 1, "standbys": 2, **self._petstore_listeners()}.items()
            if len(up.get(listener, [])) != count
        ]
        found += [f"{each.name} is not ready" for each in self.petstores if self.has_petstore() and not each.ready()]
        return found

    def synchronous(self):
        try:
            answers = (http.request(member.api_port, "/config") for member in self.members if member.patroni.pid)
            return any(json.loads(body).get("synchronous_mode") for status, body in answers if status == 200)
        except OSError:
            return True

    @staticmethod
    def _standbys_role(synchronous):
        return "sync_standby" if synchronous else "replica"

    def has_petstore(self):
        return self.state.key_file.exists()

    def _petstore_listeners(self):
        return {"store": 3, "messages": 3} if self.has_petstore() else {}

    def start(self, program):
        """Starts everything and waits until it is healthy. Without `program`, starts no petstore."""
        say("starting etcd")
        self.etcd.start()
        self.etcd.wait()
        say("starting three PostgreSQL servers with Patroni")
        # The first one creates the database, which the others copy.
        first, *others = self.members
        first.start()
        wait_until(f"a primary (see {first.patroni.log})", lambda: first.answers("/primary"), 60)
        for member in others:
            member.start()
        database.make(self.state, first.port)
        wait_until("two synchronous standbys", lambda: len(self.sync_standbys()) == 2, 60)
        say("starting HAProxy")
        self.haproxy.start()
        self.haproxy.wait()
        if program:
            say("starting three petstore processes")
            petstore.install(self.state, program)
            petstore.make_key(self.state)
            for each in self.petstores:
                each.start()
        self.wait_until_healthy()

    def heal(self):
        """Starts stopped processes, resumes paused ones, and waits until the cluster is healthy."""
        if not self.etcd.process.pid:
            self.etcd.start()
        self.etcd.wait()
        for member in self.members:
            member.resume()
            if not member.patroni.pid:
                member.start()
        if not self.haproxy.process.pid:
            self.haproxy.start()
        for each in self.petstores:
            if self.has_petstore() and not each.process.pid:
                each.start()
        self.wait_until_healthy()

    def wait_until_healthy(self, seconds=120):
        deadline = time.monotonic() + seconds
        while problems := self.problems():
            if time.monotonic() > deadline:
                logs = self.state.folder / "log"
                raise Failed(f"not healthy after {seconds} s: {'; '.join(problems)} (logs: {logs})")
            time.sleep(0.2)

    def set_synchronous(self, on):
        """Turns synchronous replication on or off, for negative controls of fault tests."""
        leader = wait_until("a leader", self.leader, 30)
        leader.configure({"synchronous_mode": on})
        wait_until(
            f"synchronous mode {'on' if on else 'off'}",
            lambda: [each["role"] for each in self.view().values()].count(self._standbys_role(on)) == 2,
            30,
        )

    def stop(self):
        """Stops everything in the order of dependencies, and removes the folder."""
        say("stopping petstore")
        for each in self.petstores:
            each.process.stop(35)
        self.haproxy.process.stop(5)
        say("stopping PostgreSQL")
        leader = self.leader()
        for member in sorted(self.members, key=lambda member: leader is not None and member.name == leader.name):
            member.stop()
        self.etcd.process.stop(5)
        shutil.rmtree(self.state.folder)


def remove(folder):
    """Stops and removes a cluster, even if it was started only partially."""
    if not (folder / FILE).exists() and folder.is_dir() and not os.listdir(folder):
        folder.rmdir()
        return
    Cluster.open(folder).stop()
