"""Every row of the simulation table, with the client of openapi-python-client."""

import json
import os
import time
import uuid

import httpx
from petstore import AuthenticatedClient
from petstore.api.messages import send_message
from petstore.api.pets import create_pet, get_pet, list_pets
from petstore.api.store import place_order
from petstore.models import MessageInput, NewPet, OrderInput


def client(url, **options):
    return AuthenticatedClient(base_url=os.environ[url], token=os.environ["STORE_API_KEY"], **options)


def show(prefer, response, *headers):
    assert response.headers["Preference-Applied"] == prefer
    body = json.loads(response.content)
    shown = [f"{header}={response.headers[header]}" for header in headers]
    print(prefer, int(response.status_code), body["code"] if "code" in body else "no error", *shown)


def lost(prefer, call):
    """Calls an operation whose response never arrives."""
    try:
        call()
    except httpx.TransportError as error:
        print(prefer, type(error).__name__)


store, messages = client("STORE_URL"), client("MESSAGES_URL")
rex, order, message = NewPet(name="Rex", category_id=3), OrderInput(pet_id=1), MessageInput(message="Hello")

# Overload: wait as long as the response says, then retry.
for prefer in ["code=503", "code=429"]:
    failed = list_pets.sync_detailed(client=store, prefer=prefer)
    show(prefer, failed, "Retry-After")
    time.sleep(int(failed.headers["Retry-After"]))
    assert list_pets.sync_detailed(client=store).status_code == 200
show("code=503", send_message.sync_detailed(client=messages, body=message, prefer="code=503"), "Retry-After")
show("code=409", place_order.sync_detailed(client=store, body=order, prefer="code=409"))
show("error=missing_field", create_pet.sync_detailed(client=store, body=rex, prefer="error=missing_field"))
unauthorized = list_pets.sync_detailed(client=store, prefer="error=invalid_api_key")
show("error=invalid_api_key", unauthorized, "WWW-Authenticate")

# A late response.
began = time.monotonic()
show("delay=700", list_pets.sync_detailed(client=store, prefer="delay=700"))
assert time.monotonic() - began >= 0.7
impatient = client("STORE_URL", timeout=httpx.Timeout(30, read=0.3))
lost("delay=700", lambda: list_pets.sync_detailed(client=impatient, prefer="delay=700"))

# A lost response or request: the retry with the same key adds one animal in both cases.
for prefer in ["drop=response", "drop=request"]:
    key = str(uuid.uuid4())
    lost(prefer, lambda: create_pet.sync_detailed(client=store, body=rex, idempotency_key=key, prefer=prefer))
    retried = create_pet.sync_detailed(client=store, body=rex, idempotency_key=key)
    is_replayed = retried.headers.get("Idempotent-Replayed", "false")
    print("retried", int(retried.status_code), retried.parsed.id, f"replayed={is_replayed}")

# The day of the removal.
day = "date=2030-12-05"
show(day, get_pet.sync_detailed(1, client=store, prefer=day), "Sunset")
added = create_pet.sync_detailed(client=store, body=rex, prefer=day)
show(day, added)
assert "Location" not in added.headers
