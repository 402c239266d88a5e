"""Starts a store for tests. The plugin for pytest has fixtures of it."""

import importlib.metadata
import json
import os
import subprocess
from typing import Any, TypedDict
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
        command = [_program(), "ephemeral", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended with status {self._process.wait()}: see its message")
        ready = json.loads(line)
        self.url: str = ready["storeUrl"]
        self.messages_url: str = ready["messagesUrl"]
        self.ops_url: str = ready["opsUrl"]
        self.console_url: str = ready["consoleUrl"]
        self.key: str = ready["key"]
        self.customer_key: str = ready["customerKey"]
        self.email: str = ready["email"]
        self.password: str = ready["password"]
        self.data_dir: str = ready["dataDir"]

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

    def reset(self) -> None:
        """Deletes orders, messages and recorded requests, and replaces all animals by the first 30."""
        self._run("reset", "--yes")
        for key in self.key, self.customer_key:
            self._journal("DELETE", key).close()

    def close(self) -> None:
        """Ends the store and waits until its folder is gone."""
        self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _journal(self, method: str, key: str) -> Any:
        request = Request(f"{self.ops_url}/requests", method=method, headers={"Authorization": f"Bearer {key}"})
        return build_opener(ProxyHandler({})).open(request)

    def _run(self, *arguments: str) -> str:
        # Settings in the environment may name another database, which takes precedence over the folder.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PETSTORE_")}
        command = [_program(), *arguments, "--data-dir", self.data_dir]
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return ran.stdout.strip()


def _program() -> str:
    """Returns the path of the program that pip has installed from the same wheel."""
    files = importlib.metadata.files("petstore") or []
    return str(next(file for file in files if file.name in ("petstore", "petstore.exe")).locate())
