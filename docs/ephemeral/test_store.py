import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest


def list_animals(store, key):
    request = Request(f"{store.url}/pets", headers={"Authorization": f"Bearer {key}"})
    with urlopen(request) as response:
        return json.load(response)


def test_store_has_animals(petstore):
    assert list_animals(petstore, petstore.key)[0]["name"] == "Rex"


def test_every_second_request_fails(petstore):
    key = petstore.failing_key("code=503, every=2")
    list_animals(petstore, key)
    with pytest.raises(HTTPError, match="503"):
        list_animals(petstore, key)
