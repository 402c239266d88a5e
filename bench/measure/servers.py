"""Starts servers on their core, monitors and stops them."""

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from . import SPLIT, Cores, Failed
from .operations import BY_NAME, request

# Removes the caller's settings, such as a log level or a database URL.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PETSTORE_", "PG"))}
# Headers that differ between responses or come from the HTTP library.
PER_ANSWER = ("date", "content-length", "connection", "x-request-id")
# Accepts the certificate that the benchmark made.
ANY_CERTIFICATE = ssl.create_default_context()
ANY_CERTIFICATE.check_hostname, ANY_CERTIFICATE.verify_mode = False, ssl.CERT_NONE


class Server(NamedTuple):
    name: str
    process: subprocess.Popen
    addresses: dict  # listener -> host:port
    key: str
    start_ms: float  # from exec to the first correct response
    cores: Cores | None  # None: server and load use all cores
    scheme: str


class Answer(NamedTuple):
    status: int
    headers: list  # (name, value)
    body: bytes


def ask(address, key, request, scheme="http"):
    """Sends a request on its own connection."""
    if scheme == "https":
        connection = http.client.HTTPSConnection(address, timeout=10, context=ANY_CERTIFICATE)
    else:
        connection = http.client.HTTPConnection(address, timeout=10)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request(request.method, request.path, request.body and request.body.encode(), headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


@contextlib.contextmanager
def running(name, command, environment, log, find_addresses, key, cores=SPLIT, scheme="http"):
    """Runs a server and waits for its first correct response. `find_addresses` finds its addresses in its output."""
    with log.open("w") as out:
        begin = time.monotonic()
        process = subprocess.Popen(
            [*(["taskset", "-c", cores.server] if cores else []), *command],
            stdout=out, stderr=out, cwd=log.parent, env={**ENVIRONMENT, **environment},
            start_new_session=True,  # Ctrl-C reaches only this program, which stops the servers.
        )
    try:
        while not ((addresses := find_addresses(log.read_text())) and answers(addresses["store"], key, scheme)):
            if process.poll() is not None or time.monotonic() > begin + 60:
                raise Failed(f"{name} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.001)
        yield Server(name, process, addresses, key, (time.monotonic() - begin) * 1e3, cores, scheme)
        if process.poll() is not None:
            raise Failed(f"{name} ended unexpectedly:\n{log.read_text()[-2000:]}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            # Includes its workers, which are in its process group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(address, key, scheme):
    try:
        return ask(address, key, request("list20", 0), scheme).status == 200
    except OSError:
        return False


def petstore_addresses(log):
    # The last line may be incomplete, and a panic is not JSON.
    for line in log.splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            event = json.loads(line)
            if event.get("message") == "listening":
                return event


def yardstick_addresses(log):
    return single_address(log, "")


def rival_addresses(log):
    return single_address(log, "listening ")


def single_address(log, before):
    """Returns the single address of the yardstick or a rival."""
    for line in log.splitlines(keepends=True):
        if line.startswith(before) and line.endswith("\n"):
            return dict.fromkeys(("store", "messages"), line.removeprefix(before).strip())


def copy_answers(server, folder, padding="", number=50_000):
    """Stores a server's response to each operation for the yardstick."""
    folder.mkdir(exist_ok=True)
    for load in ("list20", "list20cold", "list100", "get", "create", "message"):
        asked = request(load, number, padding)
        answer = ask(server.addresses[BY_NAME[load].listener], server.key, asked, server.scheme)
        if answer.status != asked.status:
            raise Failed(f"{server.name}, {load}: {answer.status} {answer.body.decode()}")
        lines = [f"{name}: {value}" for name, value in answer.headers if name not in PER_ANSWER[:3]]
        (folder / load).write_bytes("\n".join([str(answer.status), *lines, "", ""]).encode() + answer.body)


def check_same_answers(petstore, yardstick, padding="", number=50_000):
    """Checks that the yardstick sends the same bytes as petstore, or as many if ids differ."""
    for load in ("list20", "list20cold", "list100", "get", "create", "message"):
        asked = request(load, number, padding)
        listener = BY_NAME[load].listener
        ours, theirs = (ask(s.addresses[listener], s.key, asked, s.scheme) for s in (petstore, yardstick))
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
    """Yields the fields after the name in /proc/PID/stat (proc_pid_stat(5)) for each process of the session."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            # The process may have ended meanwhile.
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == server.process.pid:
                    yield folder, fields


def cpu_seconds(server):
    """Returns the user and system time of all the server's processes since their start."""
    ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in processes(server))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(server):
    """Returns the resident memory of all the server's processes. Shared memory counts once per process."""
    total = 0
    for folder, _ in processes(server):
        with contextlib.suppress(OSError):
            rollup = (folder / "smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))
    return total * 1024 / 1e6
