"""The load: wrk at the maximum rate, oha at a fixed rate, a slow stream of creates, and the bare disk."""

import contextlib
import http.client
import json
import math
import os
import random
import statistics
import subprocess
import tempfile
import threading
import time

from . import LOAD_CORE, ROOT, TOOLS, Failed
from .operations import BY_NAME, request
from .servers import ask, cpu_seconds, memory_mb

OHA = TOOLS / "bin/oha"
# Checked requests before a measurement. The first 40,000 creates lengthen the WAL, which makes them dearer. A slow
# server gets them for WARM_UP_SECONDS only.
WARM_UP, WARM_UP_SECONDS = 50_000, 4
CREATES_PER_CLIENT = 50  # of `trickle`, per second
# Maximum rate at which oha keeps up on one core, with a margin.
OPEN_LOOP_MOST = 20_000


def measure(
    server, operation, animals, seconds, padding="", open_loop=True, meters=None, warm_up_seconds=WARM_UP_SECONDS
):
    """Measures one operation on one server, after checking every kind of its responses.

    `meters` are others whose CPU time is looked at: their figure's name, and what tells their seconds so far.
    """
    meters = {"cpu_us": lambda: cpu_seconds(server), **(meters or {})}
    checked, unused = warmed_up(server, operation, animals, padding, warm_up_seconds)
    with trickle(server, operation.trickle) if operation.trickle else contextlib.nullcontext([]) as created:
        before, clock = [read() for read in meters.values()], time.monotonic()
        created.clear()
        result = closed_loop(server, operation, animals, seconds, padding, unused)
        clock = time.monotonic() - clock
        creates = len(created)
        spent = {name: read() - start for (name, read), start in zip(meters.items(), before)}
    requests = result["requests"]
    size, checked_size = result["bytes"] / requests, checked["bytes"] / checked["requests"]
    # The warm-up checked every response. Measured ones must have the same mean size; a mix has it only on average.
    if abs(size / checked_size - 1) > (0.25 if operation.parts else 0.05):
        raise Failed(f"{operation.name}: responses have {size:.0f} bytes, but had {checked_size:.0f} when checked")
    figure = {
        **{name: round(seconds / requests * 1e6, 2) for name, seconds in spent.items()},
        "busy": round(spent["cpu_us"] / clock, 3),
        "answers": checked["requests"] + requests,
        "rate": round(requests / clock, 1),
        "p50_us": result["p50_us"],
        "p99_us": result["p99_us"],
        "bytes": round(size, 1),
        "memory_mb": round(memory_mb(server), 2),
    }
    if operation.trickle:
        figure["creates"] = round(creates / clock, 1)
    if open_loop and operation.open_loop:
        rate = min(figure["rate"] / 2, OPEN_LOOP_MOST)
        figure["open"] = fixed_rate(server, operation, animals, rate, seconds, padding)
    return figure


def warmed_up(server, operation, animals, padding, seconds):
    """Returns the sums of the checked requests, and the number of the first available animal that none has ordered."""
    checked, unused = {"requests": 0, "bytes": 0}, 0
    # One client's creates come after those of 64 clients.
    for _ in range(seconds if operation.clients > 1 else 1):
        result = closed_loop(server, operation, animals, 1, padding, unused, "check")
        checked = {name: checked[name] + result[name] for name in checked}
        # An animal can be ordered once. wrk ends without the responses to its last requests.
        unused += result["requests"] + 2 * operation.clients
        if checked["requests"] >= WARM_UP:
            break
    return checked, unused


def closed_loop(server, operation, animals, seconds, padding, unused, *check):
    """Runs wrk: each connection sends its next request when it has received a response."""
    command = ["taskset", "-c", server.cores.load, "wrk", "-t1"] if server.cores else ["wrk", "-t2"]
    command += [f"-c{operation.clients}", f"-d{seconds}s"]
    # With the default of 2 seconds, slow responses would count as broken connections.
    url = f"{server.scheme}://{server.addresses[operation.listener]}"
    command += ["--timeout", "30s", "-s", ROOT / "bench/load.lua", url, "--"]
    command += [operation.load, server.key, str(animals), padding, str(unused), *check]
    done = subprocess.run(command, text=True, capture_output=True)
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode != 0 or not last.startswith("{"):
        raise Failed(f"wrk failed:\n{done.stdout}{done.stderr}")
    result = json.loads(last)
    if not result["requests"]:
        raise Failed(f"{server.name}, {operation.name}: no response in {seconds} s")
    if result["wrong"] or result["broken"]:
        raise Failed(f"{server.name}, {operation.name}: wrong responses or broken connections: {last}")
    return result


def fixed_rate(server, operation, animals, rate, seconds, padding=""):
    """Runs oha: requests are due at a fixed rate, and latency counts from the due time, even if no connection was free.

    One oha sends one kind of request, so a mix is several at once, each with its share.
    """
    shares = operation.parts or ((operation.load, 1.0),)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        started = []
        for load, share in shares:
            clients = max(1, round(operation.clients * share))
            command = oha(server, load, animals, rate * share, clients, seconds, padding, folder)
            process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            stack.callback(process.kill)
            started.append((load, rate * share, process))
        return {load: latencies(server, load, asked, process, seconds) for load, asked, process in started}


def oha(server, load, animals, rate, clients, seconds, padding, folder):
    """Returns the command. Files in `folder` have the addresses and bodies from which it chooses at random."""
    chance = random.Random(1)
    numbers = [chance.randint(1, animals - 100) for _ in range(10_000)]
    base = f"http://{server.addresses[BY_NAME[load].listener]}"
    one = request(load, 1, padding)
    command = ["taskset", "-c", str(LOAD_CORE), OHA, "--no-tui", "--output-format", "json", "--worker-threads", "1"]
    command += ["-c", str(clients), "-z", f"{seconds}s", "-w", "-q", str(round(rate, 1)), "--latency-correction"]
    command += ["-m", one.method, "-H", f"Authorization: Bearer {server.key}", "-T", "application/json"]
    if one.body is not None:
        bodies = os.path.join(folder, f"{load}.bodies")
        with open(bodies, "w") as file:
            file.writelines(request(load, number, padding).body + "\n" for number in numbers)
        return [*command, "-Z", bodies, base + one.path]
    addresses = os.path.join(folder, f"{load}.addresses")
    with open(addresses, "w") as file:
        file.writelines(base + request(load, number).path + "\n" for number in numbers)
    return [*command, "--urls-from-file", addresses]


def latencies(server, load, asked, process, seconds):
    try:
        output, errors = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        raise Failed(f"{server.name}, {load}: oha did not finish") from None
    if process.returncode != 0:
        raise Failed(f"oha failed:\n{output}{errors}")
    result = json.loads(output)
    statuses, broken = result["statusCodeDistribution"], result["errorDistribution"]
    if set(statuses) != {str(request(load, 1).status)} or broken:
        raise Failed(f"{server.name}, {load} at a fixed rate: statuses {statuses}, errors {broken}")
    percentiles = result["latencyPercentiles"]
    return {
        "asked": round(asked, 1),
        "rate": round(statuses.popitem()[1] / seconds, 1),
        "p50_us": round(percentiles["p50"] * 1e6),
        "p99_us": round(percentiles["p99"] * 1e6),
    }


@contextlib.contextmanager
def trickle(server, per_second):
    """Runs other clients that create this many animals per second, or as many as they can. Provides a list that gets an
    element for each."""
    stop, failures, created = threading.Event(), [], []
    clients = math.ceil(per_second / CREATES_PER_CLIENT)

    def create(client):
        # Reuses one connection, because opening one costs a server more than a list.
        connection = http.client.HTTPConnection(server.addresses["store"], timeout=10)
        asked = request("create", 1)
        headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
        try:
            due = time.monotonic() + client / per_second
            while not stop.wait(max(0, due - time.monotonic())):
                due += clients / per_second
                connection.request(asked.method, asked.path, asked.body, headers)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != asked.status:
                    failures.append(body)
                created.append(client)
        except (OSError, http.client.HTTPException) as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=create, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield created
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise Failed(f"{server.name}: concurrent creates failed: {failures[0]}")


def commit_bytes(server, store):
    """Returns the number of bytes that SQLite appends to its WAL per animal: pages with a header of 24 bytes each."""
    log, sizes = store / "petstore.db-wal", []
    for number in range(6):
        answer = ask(server.addresses["store"], server.key, request("create", number))
        if answer.status != 201:
            raise Failed(f"create: {answer.status} {answer.body.decode()}")
        sizes.append(log.stat().st_size)
    # Some animals need another page.
    added = statistics.median_low(after - before for before, after in zip(sizes, sizes[1:]))
    if added <= 0:
        raise Failed(f"{log.name} does not grow by the size of the commits: {sizes}")
    return added


def bare_sync_us(folder, size, count=300):
    """Returns the median time of write and fdatasync of a commit's size, in a file of full length, like a reused WAL."""
    block, times = os.urandom(size), []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(block * count)
        os.fsync(file.fileno())
        for i in range(count):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), block, i * size)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    return round(statistics.median(times) * 1e6, 1)
