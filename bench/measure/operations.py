"""The measured operations."""

from typing import NamedTuple


class Operation(NamedTuple):
    name: str
    what: str
    load: str  # name in load.lua and `Request`
    clients: int = 64
    listener: str = "store"
    trickle: int = 0  # animals that another client creates per second
    parts: tuple = ()  # of a mix: (operation, share of requests)
    open_loop: bool = True  # whether latency is also measured at a fixed rate

    @property
    def reads(self):
        return self.load.startswith(("list", "get"))


MIX = (("list20", 0.45), ("get", 0.45), ("create", 0.10))

# Reads come first, because writes change the size of the database. `create1` comes after `create`, when the WAL has its
# full length.
OPERATIONS = [
    Operation("list20", "list 20 by status", "list20"),
    Operation("list20cold", "list 20, no page kept", "list20cold"),
    Operation("list20writes", "list 20, 20 creates a second", "list20", trickle=20, open_loop=False),
    Operation("list20busy", "list 20, 1,000 creates a second", "list20", trickle=1000, open_loop=False),
    Operation("list100", "list 100", "list100"),
    Operation("get", "get by random id", "get"),
    Operation("message", "message, durable, 64 clients", "message", listener="messages"),
    Operation("mix", "45 % list, 45 % get, 10 % create", "mix", parts=MIX),
    Operation("create", "create, durable, 64 clients", "create"),
    Operation("create1", "create, durable, 1 client", "create", clients=1, open_loop=False),
]
# Only of petstore, on a database of their own.
ORDERS = [
    Operation("order", "place an order, neighbouring animals", "order"),
    Operation("orderfar", "place an order, animals far apart", "orderfar"),
]
BY_NAME = {operation.name: operation for operation in (*OPERATIONS, *ORDERS)}


class Request(NamedTuple):
    """A request of an operation, for clients other than wrk."""

    method: str
    path: str
    body: str | None
    status: int  # of a correct response


def request(load, number, padding=""):
    """Returns the request of `load` (list20, list20cold, list100, get, create, message or order) for this number."""
    match load:
        case "list20":
            return Request("GET", "/v1/pets?limit=20&status=available", None, 200)
        case "list20cold":
            return Request("GET", f"/v1/pets?limit=20&status=available&after={number}", None, 200)
        case "list100":
            return Request("GET", "/v1/pets?limit=100", None, 200)
        case "get":
            return Request("GET", f"/v1/pets/{number}", None, 200)
        case "create":
            body = f'{{"name":"pet-{number:08}{padding}","categoryId":7,"status":"available"}}'
            return Request("POST", "/v1/pets", body, 201)
        case "message":
            return Request("POST", "/v1/messages", f'{{"message":"Hello, number {number:08}"}}', 202)
        case "order":
            return Request("POST", "/v1/store/orders", f'{{"petId":{number}}}', 201)
    raise ValueError(load)
