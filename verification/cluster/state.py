"""State of a cluster, stored in its folder: ports, passwords, programs and API key."""

import json
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from .packages import Programs
from .processes import Failed, User, free_ports

MEMBERS = ("pg1", "pg2", "pg3")
PETSTORES = ("petstore1", "petstore2", "petstore3")
LISTENERS = ("store", "messages", "ops")
FILE = "cluster.json"


class State(NamedTuple):
    folder: Path
    user: User
    programs: Programs
    ports: dict
    passwords: dict
    through_haproxy: bool

    @classmethod
    def make(cls, folder, user, programs, through_haproxy):
        """Initializes the folder, which must be new or empty."""
        folder = folder.resolve()
        check_reach(folder, user)
        if (folder / FILE).exists():
            raise Failed(f"there is already a cluster in {folder}: run `scripts/cluster down` first")
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Failed(f"{folder} is not empty: choose another folder with --dir")
        names = ["etcd", "etcd_peer", "primary", "standbys", "store", "messages", "haproxy_stats"]
        names += [f"{member}{part}" for member in MEMBERS for part in ("", "_api")]
        names += [f"{petstore}_{listener}" for petstore in PETSTORES for listener in LISTENERS]
        ports = dict(zip(names, free_ports(len(names))))
        passwords = {who: secrets.token_hex(16) for who in ("postgres", "replicator", "patroni", "petstore")}
        state = cls(folder, user, programs, ports, passwords, through_haproxy)
        state._write()
        for part in ("run", "log", "config", "data"):
            (folder / part).mkdir()
        # Root created the folders, but all processes run as the other user.
        if not os.getuid():
            for path in (folder, *folder.iterdir()):
                os.chown(path, user.uid, user.gid)
        folder.chmod(0o700)
        return state

    @classmethod
    def read(cls, folder):
        folder = folder.resolve()
        try:
            kept = json.loads((folder / FILE).read_text())
        except FileNotFoundError:
            raise Failed(f"there is no cluster in {folder}: start one with `scripts/cluster up`") from None
        kept["user"], kept["programs"] = User(*kept["user"]), Programs(*kept["programs"])
        return cls(folder, **kept)

    def _write(self):
        file = self.folder / FILE
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump({name: value for name, value in self._asdict().items() if name != "folder"}, out, indent=1)

    @property
    def key_file(self):
        return self.folder / "api.key"

    def config(self, name, text):
        """Writes a configuration file that only the cluster's user can read, because it may contain passwords."""
        file = self.folder / "config" / name
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            out.write(text)
        if not os.getuid():
            os.chown(file, self.user.uid, self.user.gid)
        return file


def check_reach(folder, user):
    """Checks that the user can access the folder, unlike one in root's home."""
    for parent in folder.parents:
        if user.uid != os.getuid() and parent.exists() and not parent.stat().st_mode & 0o001:
            raise Failed(f"the user {user.name} cannot access {parent}: choose another folder with --dir")
