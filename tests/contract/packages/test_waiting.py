import os
import time

import pytest


@pytest.mark.parametrize("number", range(2))
def test_waits(petstore, petstore_per_test, number):
    petstore.reset()
    assert petstore.url != petstore_per_test.url
    with open("waiting", "a") as file:
        file.write(f"{os.getpid()} {petstore.url}\n")
    time.sleep(600)
