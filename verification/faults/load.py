"""Clients that write one request after the other and record each outcome in a ledger."""

import asyncio
import bisect
import contextlib
import json
import threading
import time
from array import array
from typing import NamedTuple

from cluster.database import sql
from cluster.processes import wait_until

TIMEOUT = 15


class Answer(NamedTuple):
    status: int
    body: dict | None  # None in a response of HAProxy, which has not forwarded the request


class Connection:
    """A keep-alive connection that reconnects after a failure. Supports only the HTTP/1.1 that the tests need."""

    def __init__(self, port):
        self._port, self._stream = port, None

    async def post(self, path, key, body):
        """Returns the response. Raises OSError if there is none; the outcome is then unknown."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._post(path, key, json.dumps(body).encode())
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise OSError(repr(error)) from error

    async def _post(self, path, key, body):
        if self._stream is None:
            self._stream = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._stream
        head = f"POST {path} HTTP/1.1\r\nHost: petstore\r\nAuthorization: Bearer {key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        if "content-length" in headers:
            content = await reader.readexactly(int(headers["content-length"]))
        else:
            content = await reader.read()
        if "content-length" not in headers or headers.get("connection") == "close":
            self.close()
        ours = headers.get("content-type", "").startswith("application/json")
        return Answer(int(lines[0].split()[1]), json.loads(content) if ours else None)

    def close(self):
        if self._stream:
            self._stream[1].transport.abort()
        self._stream = None


async def write(connection, key, ledger, message=False, valid=True):
    """Sends one write and records its outcome. Returns whether it was acknowledged."""
    name = ledger.new_name()
    body = {"message" if message else "name": name, "categoryId": 1}
    if not valid:
        del body["categoryId"]
    answer = await connection.post("/v1/messages" if message else "/v1/pets", key, body)
    if answer.status in (201, 202):
        ledger.acknowledge(name, str(answer.body["id"]))
        return True
    # A 503 of petstore may report a commit of unknown outcome. A 503 of HAProxy means that no process got the request.
    if answer.status < 500 or answer.body is None and answer.status == 503:
        ledger.refuse(name)
    return False


class Load:
    """32 clients in a separate thread. One in four sends messages, the others create animals."""

    CLIENTS = 32
    PAUSE = 0.02
    # Shorter than Retry-After, so that the load notices soon when writes succeed again.
    RETRY = 0.1
    INVALID_EVERY = 50

    def __init__(self, state, ledger):
        self.ledger = ledger
        self._key = state.key_file.read_text().strip()
        self._ports = (state.ports["store"], state.ports["messages"])
        self._acknowledged_at = array("d")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def first_after(self, moment):
        """Returns the time (monotonic) of the first acknowledgement after `moment`, or None."""
        at = bisect.bisect_right(self._acknowledged_at, moment)
        return self._acknowledged_at[at] if at < len(self._acknowledged_at) else None

    async def _run(self):
        async with asyncio.TaskGroup() as clients:
            for number in range(self.CLIENTS):
                clients.create_task(self._write_on(message=number % 4 == 0))

    async def _write_on(self, message):
        connection, sent = Connection(self._ports[message]), 0
        while not self._stop.is_set():
            sent += 1
            # Some writes are invalid, so that the database must not contain them.
            valid = message or sent % self.INVALID_EVERY != 0
            acknowledged = False
            with contextlib.suppress(OSError):
                acknowledged = await write(connection, self._key, self.ledger, message, valid)
            if acknowledged:
                self._acknowledged_at.append(time.monotonic())
            await asyncio.sleep(self.PAUSE if acknowledged else self.RETRY)
        connection.close()


def rows(cluster, prefix):
    """Returns the names and ids of a ledger's writes on the primary."""
    leader = wait_until("a primary", cluster.leader, 60)
    text = f"""
        SELECT name, id::text FROM pets WHERE name LIKE '{prefix}-%'
        UNION ALL
        SELECT message, 'msg_' || replace(id::text, '-', '') FROM messages WHERE message LIKE '{prefix}-%'"""
    return sql(cluster.state, leader.port, text, seconds=300)
