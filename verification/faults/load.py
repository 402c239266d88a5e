"""Clients that write one request after the other and record each outcome in a ledger."""

import bisect
import contextlib
import http.client
import json
import threading
import time

from cluster.database import sql
from cluster.processes import wait_until


def connection_to(port):
    """Returns a keep-alive connection, which reconnects after a failure."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=15)


def write(connection, key, ledger, message=False, valid=True):
    """Sends one write and records its outcome. Returns whether it was acknowledged. Without a response, it is unknown."""
    name = ledger.new_name()
    body = {"message" if message else "name": name, "categoryId": 1}
    if not valid:
        del body["categoryId"]
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/messages" if message else "/v1/pets", json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return False
    if response.status in (201, 202):
        ledger.acknowledge(name, str(json.loads(content)["id"]))
        return True
    # A 503 of petstore may report a commit of unknown outcome. A 503 of HAProxy, which is no JSON, means that no process got
    # the request.
    if response.status < 500 or response.status == 503 and response.headers.get_content_type() != "application/json":
        ledger.refuse(name)
    return False


class Load:
    """32 clients. One in four sends messages, the others create animals."""

    CLIENTS = 32
    PAUSE = 0.02
    # Shorter than Retry-After, so that the load notices soon when writes succeed again.
    RETRY = 0.1
    INVALID_EVERY = 50

    def __init__(self, state, ledger):
        self.ledger = ledger
        self._key = state.key_file.read_text().strip()
        self._ports = (state.ports["store"], state.ports["messages"])
        self._acknowledged_at, self._stop = [], threading.Event()
        self._clients = [threading.Thread(target=self._write_on, args=(number % 4 == 0,)) for number in range(self.CLIENTS)]

    def __enter__(self):
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for client in self._clients:
            client.join()

    def first_after(self, moment):
        """Returns the time (monotonic) of the first acknowledgement after `moment`, or None."""
        at = bisect.bisect_right(self._acknowledged_at, moment)
        return self._acknowledged_at[at] if at < len(self._acknowledged_at) else None

    def _write_on(self, message):
        with contextlib.closing(connection_to(self._ports[message])) as connection:
            sent = 0
            while not self._stop.is_set():
                sent += 1
                # Some writes are invalid, so that the database must not contain them.
                acknowledged = write(connection, self._key, self.ledger, message, message or sent % self.INVALID_EVERY != 0)
                if acknowledged:
                    self._acknowledged_at.append(time.monotonic())
                time.sleep(self.PAUSE if acknowledged else self.RETRY)


def rows(cluster, prefix):
    """Returns the names and ids of a ledger's writes on the primary."""
    leader = wait_until("a primary", cluster.leader, 60)
    text = f"""
        SELECT name, id::text FROM pets WHERE name LIKE '{prefix}-%'
        UNION ALL
        SELECT message, 'msg_' || replace(id::text, '-', '') FROM messages WHERE message LIKE '{prefix}-%'"""
    return sql(cluster.state, leader.port, text, seconds=300)
