"""The servers: started on their core, waited for, looked at, stopped."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from . import SERVER_CORE, Failed
from .operations import BY_NAME, request

# The caller's settings, a log level or the address of a database, are not what is measured.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PETSTORE_", "PG"))}
# What differs from answer to answer, or is the HTTP library's own.
PER_ANSWER = ("date", "content-length", "connection", "x-request-id")


class Server(NamedTuple):
    name: str
    process: subprocess.Popen
    doors: dict  # door -> host:port
    key: str
    start_ms: float  # from exec to the first right answer
    pinned: bool  # whether it has one core and the load another; else both have all


class Answer(NamedTuple):
    status: int
    headers: list  # (name, value)
    body: bytes


def ask(address, key, request):
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(address, timeout=10)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request(request.method, request.path, request.body and request.body.encode(), headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


@contextlib.contextmanager
def running(name, command, environment, log, doors_in, key, pinned=True):
    """A server from its first right answer on, on its core where it is `pinned`; `doors_in` finds its addresses in
    what it printed."""
    with log.open("w") as out:
        begin = time.monotonic()
        process = subprocess.Popen(
            [*(["taskset", "-c", str(SERVER_CORE)] if pinned else []), *command],
            stdout=out, stderr=out, cwd=log.parent, env={**ENVIRONMENT, **environment},
            start_new_session=True,  # Ctrl-C reaches only this program, which stops the servers in order.
        )
    try:
        while not ((doors := doors_in(log.read_text())) and answers(doors["store"], key)):
            if process.poll() is not None or time.monotonic() > begin + 60:
                raise Failed(f"{name} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.001)
        yield Server(name, process, doors, key, (time.monotonic() - begin) * 1e3, pinned)
        if process.poll() is not None:
            raise Failed(f"{name} ended by itself:\n{log.read_text()[-2000:]}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            # With its workers, where it has any: they are in its group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(address, key):
    try:
        return ask(address, key, request("list20", 0)).status == 200
    except OSError:
        return False


def petstore_doors(log):
    # The last line may be half written, and a panic is no JSON.
    for line in log.splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            event = json.loads(line)
            if event.get("message") == "listening":
                return event


def yardstick_doors(log):
    return one_door(log, "")


def rival_doors(log):
    return one_door(log, "listening ")


def one_door(log, before):
    """The yardstick and the rivals have one address for everything."""
    for line in log.splitlines(keepends=True):
        if line.startswith(before) and line.endswith("\n"):
            return dict.fromkeys(("store", "messages"), line.removeprefix(before).strip())


def copy_answers(server, folder, padding="", number=50_000):
    """Asks a server for an answer of each operation and writes them where the yardstick reads them."""
    folder.mkdir(exist_ok=True)
    for load in ("list20", "list20cold", "list100", "get", "create", "message"):
        asked = request(load, number, padding)
        answer = ask(server.doors[BY_NAME[load].door], server.key, asked)
        if answer.status != asked.status:
            raise Failed(f"{server.name}, {load}: {answer.status} {answer.body.decode()}")
        lines = [f"{name}: {value}" for name, value in answer.headers if name not in PER_ANSWER[:3]]
        (folder / load).write_bytes("\n".join([str(answer.status), *lines, "", ""]).encode() + answer.body)


def check_same_answers(petstore, yardstick, padding="", number=50_000):
    """The yardstick is one only while it sends what petstore sends: the same bytes, or as many where ids differ."""
    for load in ("list20", "list20cold", "list100", "get", "create", "message"):
        asked = request(load, number, padding)
        ours, theirs = (ask(s.doors[BY_NAME[load].door], s.key, asked) for s in (petstore, yardstick))
        same = sizes(ours) == sizes(theirs)
        if asked.method == "GET":
            same = same and ours.body == theirs.body and fixed(ours) == fixed(theirs)
        if not same:
            raise Failed(f"{load}: petstore and the yardstick differ:\n{ours}\n{theirs}")


def fixed(answer):
    return sorted(header for header in answer.headers if header[0] not in PER_ANSWER)


def sizes(answer):
    head = sorted((name, len(value)) for name, value in answer.headers)
    return answer.status, head, len(answer.body)


def processes(server):
    """What /proc says of every process of the server's session, in the fields of proc_pid_stat(5) after the name."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            # A process may end between one look and the next.
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == server.process.pid:
                    yield folder, fields


def cpu_seconds(server):
    """User and system time of all threads of all of the server's processes, from their start."""
    ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in processes(server))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(server):
    """Resident memory of all of the server's processes; what they share counts once for each."""
    total = 0
    for folder, _ in processes(server):
        with contextlib.suppress(OSError):
            rollup = (folder / "smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))
    return total * 1024 / 1e6
