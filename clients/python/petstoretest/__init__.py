"""Starts a store for tests. The plugin for pytest has fixtures of it."""

import importlib.metadata
import json
import os
import subprocess
from collections import deque
from contextlib import suppress
from threading import Thread
from typing import IO, Any, TypedDict
from urllib.request import ProxyHandler, Request, build_opener

__all__ = ["RecordedRequest", "Store"]


class Part(TypedDict):
    head: str | None
    body: str | None


class RecordedRequest(TypedDict):
    """A request in the journal of the operations listener."""

    id: int
    time: str
    operation: str | None
    method: str
    path: str
    status: int | None
    code: str | None
    keyId: int
    idempotencyKey: str | None
    simulated: str | None
    replayed: bool
    incomplete: bool
    durationMs: float
    requestId: str
    request: Part
    response: Part


class Store:
    """A staging store in a temporary folder. It ends at the end of a `with` block, and with this process."""

    def __init__(self, *options: str) -> None:
        """Starts `petstore ephemeral` with these options, and waits until it is ready."""
        command, pipe = [_program(), "ephemeral", *options], subprocess.PIPE
        # In a session of its own: Ctrl-C in a terminal is for the tests, which may still use the store then.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        assert self._process.stdout and self._process.stderr
        log: deque[bytes] = deque(maxlen=100)
        self._forwarding = Thread(target=_forward, args=(self._process.stderr, os.dup(2), log), daemon=True)
        self._forwarding.start()
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(_message("ephemeral", self._process.returncode, b"".join(log).decode(errors="replace")))
        ready = json.loads(line)
        self.url: str = ready["storeUrl"]
        self.messages_url: str = ready["messagesUrl"]
        self.ops_url: str = ready["opsUrl"]
        self.console_url: str = ready["consoleUrl"]
        self.key: str = ready["key"]
        self.customer_key: str = ready["customerKey"]
        self.keys: dict[str, str] = ready["keys"]
        self.email: str = ready["email"]
        self.customer_email: str = ready["customerEmail"]
        self.password: str = ready["password"]
        self.data_dir: str = ready["dataDir"]
        self.pid: int = ready["pid"]

    def failing_key(self, preferences: str) -> str:
        """Creates an API key whose requests fail as `preferences` say, such as "code=503, first=2"."""
        return self._run("key", "create", "--account", self.email, "--name", "failing", "--prefer", preferences)

    def requests(self, key: str | None = None) -> list[RecordedRequest]:
        """Returns the requests of the account of `key`, by default that of the staff, oldest first.

        Raises an error if the store no longer has all of them, because counts would be wrong.
        """
        with self._journal("GET", key or self.key) as response:
            if dropped := int(response.headers["Requests-Dropped"]):
                raise RuntimeError(f"the store has dropped {dropped} requests: reset it more often")
            requests: list[RecordedRequest] = json.load(response)
            return requests

    def reset(self, *options: str) -> None:
        """Deletes orders, messages and recorded requests, and replaces all animals by the first 30.

        With "--empty" there are none, with "--pets" and a path those of this file.
        """
        self._run("reset", "--yes", *options)
        for key in self.key, self.customer_key:
            self._journal("DELETE", key).close()

    def close(self) -> None:
        """Ends the store and waits until its folder is gone."""
        assert self._process.stdin and self._process.stdout
        self._process.terminate()
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._forwarding.join()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_running(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError("the store has ended")

    def _journal(self, method: str, key: str) -> Any:
        self._require_running()
        request = Request(f"{self.ops_url}/requests", method=method, headers={"Authorization": f"Bearer {key}"})
        return build_opener(ProxyHandler({})).open(request)

    def _run(self, *arguments: str) -> str:
        self._require_running()
        command = [_program(), *arguments, "--data-dir", self.data_dir]
        # Not in a local variable, which pytest would show.
        ran = subprocess.run(command, env=_environment(), capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(_message(arguments[0], ran.returncode, ran.stderr))
        return ran.stdout.strip()


def _environment() -> dict[str, str]:
    """Returns the environment without settings of petstore, which are for another store."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")}


def _forward(log: IO[bytes], stderr: int, last: deque[bytes]) -> None:
    """Copies the log of a store to `stderr`, and keeps the last lines."""
    with log:
        for line in log:
            last.append(line)
            with suppress(OSError):
                os.write(stderr, line)
    os.close(stderr)


def _message(command: str, status: int, log: str) -> str:
    """Returns the last error in `log` with the warnings before it, without hints about the usage."""
    before, is_found, error = f"\n{log}".rpartition("\nerror: ")
    error = error.split("\n\n")[0].strip() if is_found else f"ended with status {status}"
    return "\n".join([f"petstore {command}: {error}", *(line for line in before.split("\n") if line.startswith("warning: "))])


def _program() -> str:
    """Returns the path of the program that pip has installed from the same wheel."""
    package = importlib.metadata.distribution("petstore")
    # After `pip install --target`, the program is not where RECORD says.
    paths = ["bin/petstore", *(str(file) for file in package.files or [] if file.name == "petstore")]
    for path in paths:
        program = str(package.locate_file(path))
        if os.path.isfile(program):
            return program
    raise RuntimeError("the program of the package petstore is missing: install the wheel again")
