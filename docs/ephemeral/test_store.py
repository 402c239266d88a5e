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


def test_first_request_fails(petstore_per_test):
    key = petstore_per_test.failing_key("code=503, first=1")
    with pytest.raises(HTTPError, match="503"):
        list_animals(petstore_per_test, key)
    list_animals(petstore_per_test, key)
    assert [request["status"] for request in petstore_per_test.requests()] == [503, 200]
