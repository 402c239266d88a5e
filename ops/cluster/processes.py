"""Processes that outlive the command that started them: found again by pid files, told apart by their start times."""

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple


class Failed(Exception):
    """Why something can't go on, for the person at the terminal."""


class User(NamedTuple):
    """Whom the cluster's processes run as: PostgreSQL and Patroni refuse root."""

    name: str
    uid: int
    gid: int

    @classmethod
    def current_or_postgres(cls):
        entry = pwd.getpwuid(os.getuid()) if os.getuid() else pwd.getpwnam("postgres")
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    def popen(self):
        """How `subprocess` becomes this user, which only root can."""
        if os.getuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


class Process:
    """One process by its name in a folder: NAME.pid says which it is, NAME.log what it said."""

    def __init__(self, folder: Path, name: str):
        self.name = name
        self.log = folder / "log" / f"{name}.log"
        self._file = folder / "run" / f"{name}.pid"

    def start(self, command, user, environment=None):
        home = str(self.log.parent)
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": home} | (environment or {})
        with self.log.open("a") as log:
            started = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.log.parent, env=environment,
                # Neither Ctrl-C nor the end of this terminal reaches it.
                start_new_session=True, **user.popen(),
            )
        self._file.write_text(f"{started.pid} {start_time(started.pid)}\n")

    @property
    def pid(self):
        """Its pid while it lives; a pid that was given to another process since does not count."""
        with contextlib.suppress(OSError, ValueError):
            pid, started = map(int, self._file.read_text().split())
            if start_time(pid) == started:
                return pid
        return None

    def stop(self, seconds):
        """Asks it to end, wakes it where it was paused, and kills it where it does not end in time."""
        pid = self.pid
        if pid is None:
            return
        send([pid], signal.SIGTERM)
        send([pid], signal.SIGCONT)
        if not becomes(lambda: self.pid is None, seconds):
            send([pid], signal.SIGKILL)
            becomes(lambda: self.pid is None, 5)

    def last_words(self, lines=8):
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stat(pid):
    """The fields after the name in /proc/PID/stat (proc_pid_stat(5)): state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def start_time(pid):
    """When a process began, in ticks since the boot; nothing for one that is gone or waits to be buried."""
    fields = stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def tree(pids):
    """These processes and all that descend from them."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat(entry)):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, waiting = [], list(pids)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def becomes(condition, seconds, every=0.05):
    """Whether the condition holds within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def wait_until(what, condition, seconds, every=0.1):
    """Waits for a condition and returns its value; what can't be reached meanwhile counts as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        why = ""
        try:
            if value := condition():
                return value
        except (OSError, Failed) as error:
            why = f": {error}"
        if time.monotonic() > deadline:
            raise Failed(f"waited {seconds} s in vain for {what}{why}")
        time.sleep(every)


def free_ports(count):
    """Ports nobody listens on, below those the kernel gives to outgoing connections: they can be bound again later."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports, port = [], 20_000 + os.getpid() * 61 % 10_000
    while len(ports) < count:
        port += 1
        if port >= first_outgoing:
            raise Failed("no free ports")
        with socket.socket() as probe, contextlib.suppress(OSError):
            # A connection of before that still times out does not matter, as it won't to those who bind it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports
