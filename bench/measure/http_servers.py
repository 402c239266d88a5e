"""Compares bounded-http with other HTTP servers: CPU per request, and what thousands of bad clients do to each."""

import contextlib
import http.client
import os
import re
import resource
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path

from . import LOAD_CORE, ROOT, SERVER_CORE, Failed, crate, install, machine, plots

CRATE = "bounded-http"
SERVERS = ("bounded-http", "axum", "hyper-util", "actix-web")
NAMES = {"axum": "axum::serve", "hyper-util": "hyper-util `auto`"}
COLOURS = dict(zip(SERVERS, "adfe"))
ROUNDS, SECONDS = 5, 3
CLIENTS = 64
# Sockets of bad clients, and the interval of a slow one's bytes.
BAD, PACE = 5_000, 5
# Requests of the good client per second, each on a connection of its own.
GOOD = 50
# Each kind stays somewhat longer than the deadline of bounded-http.
KINDS = {
    "silent": ("send nothing", 80),
    "slow": ("send a byte of a head every 5 s", 25),
    "unreading": ("request 8 MB and read nothing", 45),
}


def compare(options):
    """Measures everything, and writes it to the page of the crate."""
    found = crate.begin()
    install.tools(["cargo", "wrk", "taskset"])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    program = install.build("http-servers", "--manifest-path", "bench/http/Cargo.toml")
    # Keeps this process off the server's core.
    os.sched_setaffinity(0, {LOAD_CORE})
    rounds = 2 if options.quick else ROUNDS
    cpu = {server: [] for server in SERVERS}
    for number in range(1, rounds + 1):
        install.say(f"round {number} of {rounds} (CPU µs per request)")
        for server in SERVERS:
            with running(program, server) as (process, address):
                wrk(address, 1)
                cpu[server].append(cpu_per_request(process, address))
            install.say(f"  {server:14}{cpu[server][-1]:8.2f}")
    bad = {}
    for kind, (_, stay) in KINDS.items():
        for server in SERVERS:
            with running(program, server) as (process, address):
                bad.setdefault(kind, {})[server] = beside_bad_clients(process, address, kind, 5 if options.quick else stay)
            install.say(f"  {kind:11}{server:14}{bad[kind][server]}")
    found |= {"machine": machine.described(ROOT / "target")}
    found["versions"] = crate.versions("bench/http", [*SERVERS, "hyper"])
    found |= {"rounds": rounds, "cpu_us": cpu, "bad_clients": BAD, "bad": bad}
    if not options.quick:
        crate.write(CRATE, found, table(found), plot(found))


@contextlib.contextmanager
def running(program, server):
    command = ["taskset", "-c", str(SERVER_CORE), program, server]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        address = process.stdout.readline().strip()
        if not address or ask(address) is None:
            raise Failed(f"{server} did not start")
        yield process, address
        if process.poll() is not None:
            raise Failed(f"{server} ended")
    finally:
        process.kill()
        process.wait()


def ask(address, timeout=10):
    """Returns the seconds until a response on a new connection. `None` if there is none in time."""
    begin = time.monotonic()
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request("GET", "/hello")
        return time.monotonic() - begin if connection.getresponse().read() == b"hello" else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def wrk(address, seconds):
    command = ["taskset", "-c", str(LOAD_CORE), "wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", f"http://{address}/hello"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Socket errors" in output or "Non-2xx" in output:
        raise Failed(output)
    return int(re.search(r"(\d+) requests in", output)[1])


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_per_request(process, address):
    before = cpu_seconds(process)
    requests = wrk(address, SECONDS)
    return round((cpu_seconds(process) - before) / requests * 1e6, 2)


def memory_mb(process):
    """Returns the resident memory of the process, and the memory of all TCP sockets in the kernel."""
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    resident = int(re.search(r"^Rss:\s+(\d+)", rollup, re.MULTILINE)[1]) * 1024
    pages = int(re.search(r"^TCP:.* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.MULTILINE)[1])
    return resident / 1e6, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def beside_bad_clients(process, address, kind, stay):
    """Returns what a good client sees while there are bad ones, the memory that these take at most, and how many are left."""
    before, sockets, times, peak = sum(memory_mb(process)), [], [], 0
    over = threading.Event()
    pacing = threading.Thread(target=pace, args=(sockets, over))
    try:
        for _ in range(BAD):
            sockets.append(connect(address, kind))
        if kind == "slow":
            pacing.start()
        due = time.monotonic()
        end = due + stay
        while time.monotonic() < end:
            times.append(ask(address))
            peak = max(peak, sum(memory_mb(process)))
            due += 1 / GOOD
            time.sleep(max(0, due - time.monotonic()))
        left = sum(map(is_open, sockets))
    finally:
        over.set()
        if pacing.is_alive():
            pacing.join()
        for each in sockets:
            each.close()
    answered = [took for took in times if took is not None]
    p99 = statistics.quantiles(answered, n=100)[98] if len(answered) > 1 else None
    return {
        "p99_ms": p99 and round(p99 * 1e3, 1), "unanswered": len(times) - len(answered),
        "memory_mb": round(peak - before), "left": left,
    }


def connect(address, kind):
    host, port = address.rsplit(":", 1)
    client = socket.socket()
    if kind == "unreading":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(10)
    with contextlib.suppress(OSError):
        client.connect((host, int(port)))
        request = f"GET /big HTTP/1.1\r\nhost: {address}\r\n\r\n".encode()
        client.sendall({"silent": b"", "slow": request[:1], "unreading": request * 8}[kind])
    return client


def pace(sockets, over):
    for byte in b"ET /hello HTTP/1.1 and so on":
        if over.wait(PACE):
            return
        for each in sockets:
            with contextlib.suppress(OSError):
                each.send(bytes([byte]))


def is_open(client):
    """Returns whether the server keeps a connection. A client that does not read sees no end, only the kernel's state."""
    state = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == 1  # TCP_ESTABLISHED


def table(found):
    middle = medians(found)
    rows = [["CPU per request, µs", *(f"{middle[server]:.1f}" for server in SERVERS)]]
    for kind, (what, stay) in KINDS.items():
        bad = found["bad"][kind]
        for field, name, text in (
            ("p99_ms", "p99 of others, ms", lambda it: f"{it['p99_ms']:,}" + (f"; {it['unanswered']} none" if it["unanswered"] else "")),
            ("memory_mb", "memory, MB", lambda it: f"{max(it['memory_mb'], 0):,}"),
            ("left", f"still connected after {stay} s", lambda it: f"{it['left']:,}"),
        ):
            title = f"{found['bad_clients']:,} clients {what}: {name}" if field == "p99_ms" else name
            rows.append([title, *(text(bad[server]) for server in SERVERS)])
    return [["", *(NAMES.get(server, server) for server in SERVERS)], *rows]


def plot(found):
    title = "Server CPU per request of 5 bytes, 64 connections, in µs"
    row = {server: [middle] for server, middle in medians(found).items()}
    return plots.bars(title, {"GET /hello": row}, SERVERS, from_zero=True, colours=COLOURS)


def medians(found):
    return {server: statistics.median(found["cpu_us"][server]) for server in SERVERS}
