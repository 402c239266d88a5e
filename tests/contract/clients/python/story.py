"""The story with the client of openapi-python-client."""

import os
import uuid

from petstore import AuthenticatedClient
from petstore.api.messages import send_message
from petstore.api.pets import create_pet, get_pet, list_pets
from petstore.api.store import approve_order, deliver_order, place_order
from petstore.models import MessageInput, NewPet, OrderInput, PetStatus


def client(url, key=os.environ["STORE_API_KEY"]):
    return AuthenticatedClient(base_url=os.environ[url], token=key, timeout=60)


def show(step, response, value):
    print(step, int(response.status_code), value)


store, messages = client("STORE_URL"), client("MESSAGES_URL")

pets = list_pets.sync_detailed(client=store)
show("list", pets, len(pets.parsed))

rex, tom = NewPet(name="Rex", category_id=3), NewPet(name="Tom", category_id=3, status=PetStatus.SOLD)
sold = create_pet.sync_detailed(client=store, body=tom)
show("create with status", sold, sold.parsed.status)
key = str(uuid.uuid4())
pet = create_pet.sync_detailed(client=store, body=rex, idempotency_key=key)
show("create", pet, pet.parsed.status)
again = create_pet.sync_detailed(client=store, body=rex, idempotency_key=key)
show("replay", again, str(again.parsed.id == pet.parsed.id).lower())
assert again.headers["Idempotent-Replayed"] == "true"
reused = create_pet.sync_detailed(client=store, body=tom, idempotency_key=key)
show("reused key", reused, reused.parsed.code)

got = get_pet.sync_detailed(pet.parsed.id, client=store)
show("get", got, got.parsed.name)
missing = get_pet.sync_detailed(404_404, client=store)
show("get unknown", missing, missing.parsed.code)
unauthorized = list_pets.sync_detailed(client=client("STORE_URL", "pet_test_x"))
show("wrong key", unauthorized, unauthorized.parsed.code)

order = place_order.sync_detailed(client=store, body=OrderInput(pet_id=pet.parsed.id))
show("order", order, order.parsed.status)
taken = place_order.sync_detailed(client=store, body=OrderInput(pet_id=pet.parsed.id))
show("order again", taken, taken.parsed.code)
approved = approve_order.sync_detailed(order.parsed.id, client=store)
show("approve", approved, approved.parsed.status)
delivered = deliver_order.sync_detailed(order.parsed.id, client=store)
show("deliver", delivered, delivered.parsed.status)

message = send_message.sync_detailed(client=messages, body=MessageInput(message="Hello"))
show("message", message, message.parsed.status)
