import os, re, time, uuid
import httpx
from petstore import AuthenticatedClient
from petstore.api.pets import create_pet, list_pets
from petstore.models import NewPet
from petstore.types import UNSET

store = AuthenticatedClient(base_url=os.environ["STORE_URL"], token=os.environ["STORE_API_KEY"])


def retry(operation, **request):
    for wait in [1, 2, 4, 8, None]:
        try:
            response = operation.sync_detailed(client=store, **request)
            if response.status_code < 300:
                return response
            error, is_final = response.content.decode(), response.status_code < 500
            if retry_after := response.headers.get("Retry-After"):
                wait, is_final = wait and int(retry_after), False
        except httpx.TransportError as lost:
            error, is_final = lost, False
        if is_final or wait is None:
            raise SystemExit(f"request failed: {error}")
        time.sleep(wait)


# The key is the same for every attempt, so the animal is added once.
added = retry(create_pet, body=NewPet(name="Rex", category_id=3), idempotency_key=str(uuid.uuid4()))
print("added", added.parsed.name)

after = UNSET
while after is not None:
    page = retry(list_pets, after=after)
    for pet in page.parsed:
        print(pet.id, pet.name)
    next_page = re.search(r'after=(\d+)>; rel="next"', page.headers.get("Link", ""))
    after = int(next_page[1]) if next_page else None
