"""Background processes, found by pid files and identified by their start times."""

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
    """Error message for the user."""


class User(NamedTuple):
    """User of the cluster's processes. PostgreSQL and Patroni refuse to run as root."""

    name: str
    uid: int
    gid: int

    @classmethod
    def current_or_postgres(cls):
        entry = pwd.getpwuid(os.getuid()) if os.getuid() else pwd.getpwnam("postgres")
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    def popen(self):
        """Returns arguments for `subprocess.Popen` that switch to this user, if the current user is root."""
        if os.getuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


class Process:
    """A named process. Its pid is in NAME.pid, its output in NAME.log."""

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
                # Protects it from Ctrl-C and the end of the terminal.
                start_new_session=True, **user.popen(),
            )
        self._file.write_text(f"{started.pid} {start_time(started.pid)}\n")

    @property
    def pid(self):
        """Returns the pid if the process is running. Detects a reused pid by the start time."""
        with contextlib.suppress(OSError, ValueError):
            pid, started = map(int, self._file.read_text().split())
            if start_time(pid) == started:
                return pid
        return None

    def stop(self, seconds):
        """Sends SIGTERM, resumes a paused process, and sends SIGKILL after the timeout."""
        pid = self.pid
        if pid is None:
            return
        send([pid], signal.SIGTERM)
        send([pid], signal.SIGCONT)
        if not becomes(lambda: self.pid is None, seconds):
            send([pid], signal.SIGKILL)
            becomes(lambda: self.pid is None, 5)


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stat(pid):
    """Returns the fields after the name in /proc/PID/stat (proc_pid_stat(5)): state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def start_time(pid):
    """Returns the start time of a process in ticks since boot, or None if it has ended or is a zombie."""
    fields = stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def tree(pids):
    """Returns these processes and all their descendants."""
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
    """Waits for a condition, and returns whether it was met in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def wait_until(what, condition, seconds, every=0.1):
    """Waits for a condition and returns its value. Errors count as not met."""
    deadline = time.monotonic() + seconds
    while True:
        why = ""
        try:
            if value := condition():
                return value
        except (OSError, Failed) as error:
            why = f": {error}"
        if time.monotonic() > deadline:
            raise Failed(f"timed out after {seconds} s waiting for {what}{why}")
        time.sleep(every)


def free_ports(count):
    """Returns unused ports below the ephemeral range, so that no outgoing connection takes them meanwhile."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports, port = [], 20_000 + os.getpid() * 61 % 10_000
    while len(ports) < count:
        port += 1
        if port >= first_outgoing:
            raise Failed("there are no free ports")
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Ignores connections in TIME_WAIT, as the servers do.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports
