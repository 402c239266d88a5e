"""The measured servers: how each is filled with animals and started."""

import contextlib
import json
import shutil
import subprocess
import sys

from . import SPLIT, TOOLS, Failed, name_of, status_of
from .servers import (
    ENVIRONMENT,
    check_same_answers,
    copy_answers,
    petstore_addresses,
    rival_addresses,
    running,
    yardstick_addresses,
)

RIVALS = TOOLS / "rivals"
LOCAL = "127.0.0.1:0"


def animals(count, padding=""):
    """Yields animals as newline-delimited JSON for `POST /pets`, a thousand at a time."""
    for first in range(1, count + 1, 1000):
        lines = []
        for id in range(first, min(first + 1000, count + 1)):
            animal = {"name": name_of(id, padding), "categoryId": id % 50, "status": status_of(id)}
            lines.append(json.dumps(animal, ensure_ascii=False) + "\n")
        yield "".join(lines).encode()


def feed(command, chunks, environment, folder):
    """Runs a command with `chunks` as its standard input."""
    errors = folder / "filling.log"
    with errors.open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, env={**ENVIRONMENT, **environment}
        )
        try:
            with contextlib.suppress(BrokenPipeError):
                for chunk in chunks:
                    process.stdin.write(chunk)
                process.stdin.close()
            process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        raise Failed(f"{command[0]} {command[1]} failed:\n{errors.read_text()[-2000:]}")


class Petstore:
    def __init__(self, binary, cores=SPLIT, tls=(), name="petstore"):
        """`tls` has the arguments that turn on TLS."""
        self.binary, self.cores, self.tls, self.name = binary, cores, tls, name
        self.scheme = "https" if tls else "http"

    def fill(self, folder, count, padding=""):
        """Creates a database with one account and returns its API key."""
        folder.mkdir()
        self.run(folder, "account", "create", "bench@localhost")
        key = self.run(folder, "key", "create", "--account", "bench@localhost", "--name", "bench")
        feed([self.binary, "pets", "import", "-", *self.store(folder)], animals(count, padding), {}, folder)
        return key

    def store(self, folder):
        """Returns the environment that selects the database."""
        return ["--data-dir", folder]

    def run(self, folder, *arguments):
        command = [self.binary, *arguments, *self.store(folder)]
        done = subprocess.run(command, env=ENVIRONMENT, cwd=folder, text=True, capture_output=True)
        if done.returncode != 0:
            raise Failed(f"petstore {arguments[0]} {arguments[1]} failed:\n{done.stderr}")
        return done.stdout.strip()

    def serve(self, folder, key):
        command = [self.binary, "serve", *self.store(folder), *self.tls]
        command += ["--listen", LOCAL, "--messages-listen", LOCAL, "--ops-listen", LOCAL]
        log = folder / "serve.log"
        return running(self.name, command, {}, log, petstore_addresses, key, self.cores, self.scheme)


class Rival:
    """An implementation of the same API in bench/rivals."""

    def __init__(self, name, filling, serving, environment):
        """`filling` and `serving` are commands."""
        self.name, self.filling, self.serving, self.environment = name, filling, serving, environment

    def fill(self, folder, count, key):
        folder.mkdir()
        feed([*self.filling, folder / "rival.db"], animals(count), {"BENCH_KEY": key}, folder)

    def serve(self, folder, key):
        environment = {"DATABASE": str(folder / "rival.db"), "PORT": "0", "BENCH_KEY": key, **self.environment}
        return running(self.name, self.serving, environment, folder / "serve.log", rival_addresses, key)

    def check(self, server):
        """Tests the API with bench/rivals/check.py."""
        command = [sys.executable, RIVALS / "check.py", f"http://{server.addresses['store']}/v1", server.key]
        done = subprocess.run(command, text=True, capture_output=True)
        if done.returncode != 0:
            raise Failed(f"{self.name} does not conform to the API:\n{done.stdout}{done.stderr}")


def axum(readers=1):
    program = RIVALS / "petstore-axum"
    return Rival("axum", [program, "fill"], [program, "serve"], {"READERS": str(readers)})


def fastify():
    node, folder = shutil.which("node") or "node", RIVALS / "fastify"
    return Rival("fastify", [node, folder / "fill.js"], [node, folder / "server.js"], {"NODE_ENV": "production"})


def fastapi(workers=2):
    python, folder = RIVALS / "python/bin/python", RIVALS / "fastapi"
    return Rival("fastapi", [python, folder / "fill.py"], [python, folder / "server.py"], {"WORKERS": str(workers)})


def yardstick_command(yardstick, answers, tls=()):
    return [yardstick, "--answers", answers, "--listen", LOCAL, "--threads", "1", *tls]


@contextlib.contextmanager
def petstore_and_yardstick(petstore, yardstick, folder, key, padding="", number=50_000):
    """Runs petstore on the database in `folder`, and the yardstick with its responses, and compares the two."""
    with petstore.serve(folder, key) as ours:
        said = folder / "answers"
        copy_answers(ours, said, padding, number)
        command, log = yardstick_command(yardstick, said, petstore.tls), folder / "yardstick.log"
        with running("yardstick", command, {}, log, yardstick_addresses, key, scheme=petstore.scheme) as theirs:
            check_same_answers(ours, theirs, padding, number)
            yield ours, theirs
    if ours.process.returncode != 0:
        raise Failed(f"petstore did not shut down cleanly:\n{(folder / 'serve.log').read_text()[-2000:]}")
