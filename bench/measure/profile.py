"""The profile: user-space instructions and system calls of a request, which other work on the machine does not affect."""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from . import Failed, machine
from .contestants import LOCAL, Petstore, yardstick_command
from .install import say
from .operations import request
from .servers import ANY_CERTIFICATE, copy_answers, petstore_addresses, running, yardstick_addresses

ANIMALS = 100_000
# Multiples of the number of clients.
WARM_UP, REQUESTS, TRACED = 320, 1_024, 320
FUNCTIONS = 12  # stored for each operation
CALLGRIND = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=callgrind.out"]
# The groups of functions in the table, by the prefixes of their names in callgrind's output. The first match counts.
GROUPS = (
    ("SHA-256 of the key, in software", r"<?sha2|sha256"),
    ("bounded-http", r"<?bounded_http:"),
    ("sqlite-group-commit", r"<?sqlite_group_commit:"),
    ("hyper, http", r"<?(hyper|http|httparse|http_body|bytes)[_:]|.* as hyper"),
    ("tokio, mio", r"<?(tokio|mio|futures)"),
    ("rusqlite", r"<?(rusqlite|hashlink|libsqlite3_sys)"),
    ("petstore", r".*petstore"),
    ("allocation", r"_?mi_|<?(mimalloc|libmimalloc)|__rust(c|_)"),
    ("other Rust", r".*(::|<)|_R"),
)
LIBC = (
    ("allocation", r".*(malloc|calloc|realloc|free|int_free|tcache)"),
    ("memory copies and comparisons", r".*(mem(cpy|move|set|cmp|chr)|bcmp|str)"),
    ("libc: system calls, clocks, locks", ""),
)


class Profiled(NamedTuple):
    name: str
    what: str
    load: str
    clients: int = 1
    listener: str = "store"
    step: int = 1  # distance of consecutive requests' animals, which are available
    first: int = 0


PROFILED = [
    Profiled("list20", "list 20", "list20"),
    Profiled("list20cold", "list 20, no page kept", "list20cold", step=7_919),
    Profiled("get", "get", "get", step=7_919),
    Profiled("create1", "create, 1 client", "create"),
    Profiled("create64", "create, 64 clients", "create", clients=64),
    Profiled("message64", "message, 64 clients", "message", clients=64, listener="messages"),
    Profiled("order64", "order, neighbours", "order", clients=64),
    Profiled("orderfar64", "order, far apart", "order", clients=64, step=7_919, first=5_000),
]


def expected_minutes(_options):
    return 1


def profile(petstore, yardstick, folder):
    """Returns all results, for the JSON file."""
    petstore = Petstore(petstore)
    say(f"filling a database with {ANIMALS:,} animals")
    key = petstore.fill(folder / "store", ANIMALS)
    found = {operation.name: {"what": operation.what, "yardstick": {}} for operation in PROFILED}
    for kind, count, tool in (("instructions", instructions, CALLGRIND), ("calls", calls, [])):
        copy = folder / kind
        # petstore looks at its folder again after each change of a name in it, so nothing else is written there.
        shutil.copytree(folder / "store", copy / "store")
        command = [*tool, petstore.binary, "serve", *petstore.store(copy / "store")]
        command += ["--listen", LOCAL, "--messages-listen", LOCAL, "--ops-listen", LOCAL]
        with running("petstore", command, {}, copy / "serve.log", petstore_addresses, key, cores=None) as server:
            # For 3 s after a name in its folder has changed, each commit checks every file.
            time.sleep(4)
            for operation in PROFILED:
                found[operation.name] |= count(server, operation, copy)
            answers = copy / "yardstick"
            copy_answers(server, answers)
        command = [*tool, *yardstick_command(yardstick, answers)]
        with running("yardstick", command, {}, answers / "serve.log", yardstick_addresses, key, cores=None) as server:
            for operation in PROFILED:
                # The yardstick has no response to an order.
                if operation.load != "order":
                    counted = count(server, operation, answers)
                    found[operation.name]["yardstick"][kind] = round(sum(counted[kind].values()), 2)
    return {
        "date": machine.today(),
        "animals": ANIMALS,
        "requests": REQUESTS,
        "machine": machine.described(folder, pinned=False),
        "versions": machine.program_versions(petstore.binary),
        "operations": found,
    }


def instructions(server, operation, folder):
    """Counts instructions by group of functions, with callgrind."""
    dumps = set(folder.glob("callgrind.out.*"))
    with connected(server, operation) as load:
        load(WARM_UP)
        control(server, "-i", "on")
        load(WARM_UP)
        control(server, "-z")
        load(REQUESTS)
        control(server, "-d")
        control(server, "-i", "off")
    [dump] = set(folder.glob("callgrind.out.*")) - dumps
    costs = self_costs(dump.read_text())
    say(f"  {server.name:10}{operation.what:24}{sum(costs.values()) / REQUESTS:10,.0f} instructions")
    functions = [[name, round(cost / REQUESTS)] for (_, name), cost in costs.most_common(FUNCTIONS)]
    return {"instructions": grouped(costs), "functions": functions}


def control(server, *arguments):
    subprocess.run(["callgrind_control", *arguments, str(server.process.pid)], check=True, capture_output=True)


def self_costs(text):
    """Reads callgrind's output: the instructions of each function, without those it calls, by (object, name)."""
    costs, names, file, function, skips = Counter(), {}, "", "", False
    for line in text.splitlines():
        if line.startswith(("ob=", "fn=", "cob=", "cfn=")):
            kind, _, name = line.partition("=")
            number, _, long = name.partition(" ")
            # A name is written once, then only its number.
            full = names.setdefault((kind[-2:], number), long) or long
            if kind == "ob":
                file = full
            elif kind == "fn":
                function = full
        elif line.startswith("calls="):
            skips = True
        elif line and line[0] in "+-*0123456789":
            if not skips:
                costs[file, function] += int(line.split()[1])
            skips = False
    return costs


def grouped(costs):
    found = Counter()
    for (file, name), cost in costs.items():
        is_ours = ".so" not in Path(file).name
        groups = (*GROUPS, ("SQLite", "")) if is_ours else LIBC
        found[next(group for group, pattern in groups if re.match(pattern, name))] += cost
    return {group: round(cost / REQUESTS) for group, cost in found.most_common()}


def calls(server, operation, folder):
    """Counts system calls of all threads, with strace."""
    with connected(server, operation) as load:
        load(WARM_UP)
        with traced(server, folder / "strace.out"):
            load(TRACED)
    lines = (folder / "strace.out").read_text().splitlines()
    names = Counter(match[1] for line in lines if (match := re.match(r"\d+ +(\w+)\(", line)))
    say(f"  {server.name:10}{operation.what:24}{sum(names.values()) / TRACED:10,.2f} system calls")
    return {"calls": {name: round(number / TRACED, 2) for name, number in names.most_common()}}


@contextlib.contextmanager
def traced(server, out):
    tracer = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", out, "-p", str(server.process.pid)], stderr=subprocess.DEVNULL
    )
    try:
        tasks = Path(f"/proc/{server.process.pid}/task")
        while any("TracerPid:\t0" in (task / "status").read_text() for task in tasks.iterdir()):
            time.sleep(0.01)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()


@contextlib.contextmanager
def connected(server, operation):
    """Provides a function that sends a number of requests, one after another on each of the operation's connections."""
    host, _, port = server.addresses[operation.listener].rpartition(":")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(operation.clients)]
        if server.scheme == "https":
            sockets = [stack.enter_context(ANY_CERTIFICATE.wrap_socket(each)) for each in sockets]
        files = [stack.enter_context(each.makefile("rb")) for each in sockets]
        sent = 0

        def load(requests):
            nonlocal sent
            while requests > 0:
                for each in sockets:
                    # Every third animal is available. An operation uses each at most once.
                    place = operation.first + sent * operation.step % (ANIMALS // 3 - operation.first)
                    asked = request(operation.load, 1 + 3 * place)
                    each.sendall(head_and_body(server, asked))
                    sent += 1
                for each in files:
                    if (status := receive(each)) != asked.status:
                        raise Failed(f"{operation.what}: {status}")
                requests -= len(sockets)

        yield load


def head_and_body(server, asked):
    body = (asked.body or "").encode()
    lines = [f"{asked.method} {asked.path} HTTP/1.1", "Host: 127.0.0.1:8080", f"Authorization: Bearer {server.key}"]
    lines += ["Content-Type: application/json", *([f"Content-Length: {len(body)}"] if body else []), "", ""]
    return "\r\n".join(lines).encode() + body


def receive(file):
    """Reads a response and returns its status."""
    status, length = int(file.readline().split()[1]), 0
    while (line := file.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    file.read(length)
    return status
