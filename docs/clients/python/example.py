import asyncio, email.utils, os, re, time, uuid
import httpx
from petstore import AuthenticatedClient
from petstore.api.messages import send_message
from petstore.api.pets import create_pet, list_pets
from petstore.api.store import place_order
from petstore.models import MessageInput, NewPet, OrderInput
from petstore.types import UNSET

key = os.environ["STORE_API_KEY"]
store = AuthenticatedClient(base_url=os.environ["STORE_URL"], token=key, timeout=httpx.Timeout(10))
messages = AuthenticatedClient(base_url=os.environ["MESSAGES_URL"], token=key, timeout=httpx.Timeout(10))


def seconds(retry_after):
    if retry_after.isdigit():
        return int(retry_after)
    return max(0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())


async def retry(operation, client=store, **request):
    """Returns a success, or a conflict that will not pass."""
    for wait in [1, 2, 4, 8, None]:
        try:
            # For the whole response. httpx limits only the time between its parts.
            async with asyncio.timeout(10):
                response = await operation.asyncio_detailed(client=client, **request)
            retry_after = response.headers.get("Retry-After")
            if response.status_code < 300 or response.status_code == 409 and not retry_after:
                return response
            if response.status_code == 401:
                raise SystemExit("STORE_API_KEY is not valid: create another key")
            error, is_final = response.content.decode(), response.status_code < 500 and not retry_after
            wait = seconds(retry_after) if wait and retry_after else wait
        # A lost connection, or a body that is not JSON.
        except (httpx.TransportError, TimeoutError, ValueError) as lost:
            error, is_final = repr(lost), False
        if is_final or wait is None:
            raise SystemExit(f"request failed: {error}")
        await asyncio.sleep(wait)


async def main():
    # The key is the same for every attempt, so the animal is added once.
    added = await retry(create_pet, body=NewPet(name="Rex", category_id=3), idempotency_key=str(uuid.uuid4()))
    print("added", added.parsed.name)

    order = OrderInput(pet_id=added.parsed.id)
    ordered = await retry(place_order, body=order, idempotency_key=str(uuid.uuid4()))
    print("Rex is gone" if ordered.status_code == 409 else "ordered Rex")

    hello = MessageInput(message="Hello")
    message = await retry(send_message, client=messages, body=hello, idempotency_key=str(uuid.uuid4()))
    print("message", message.parsed.status)

    after = UNSET
    while after is not None:
        page = await retry(list_pets, after=after)
        for pet in page.parsed:
            print(pet.id, pet.name)
        next_page = re.search(r'after=(\d+)>; rel="next"', page.headers.get("Link", ""))
        after = int(next_page[1]) if next_page else None


asyncio.run(main())
