import json
from urllib.request import Request, urlopen


def test_store_has_animals(store):
    request = Request(f"{store['storeUrl']}/pets", headers={"Authorization": f"Bearer {store['key']}"})
    with urlopen(request) as response:
        assert json.load(response)[0]["name"] == "Rex"
