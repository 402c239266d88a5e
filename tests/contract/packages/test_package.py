import json
import os
from urllib.request import Request, urlopen

import pytest
from petstoretest import Store


def test_errors_have_the_message_of_the_program(petstore):
    with pytest.raises(RuntimeError, match="unexpected argument '--unknown' found$"):
        Store("--unknown")
    with pytest.raises(RuntimeError, match="has the unknown preference unknown$"):
        petstore.failing_key("unknown=1")


def test_reset_prints_nothing(petstore, capfd):
    petstore.reset()
    assert capfd.readouterr() == ("", "")


def test_reset_takes_the_options_of_the_command(petstore_per_test):
    with pytest.raises(RuntimeError, match="correct them\nwarning: line 1: "):
        petstore_per_test.reset("--pets", __file__)
    petstore_per_test.reset("--empty")
    request = Request(f"{petstore_per_test.url}/pets", headers={"Authorization": f"Bearer {petstore_per_test.key}"})
    with urlopen(request) as response:
        assert json.load(response) == []


def test_store_has_the_keys_that_fail():
    with Store("--prefer", "flaky=code=503") as store:
        assert store.keys["flaky"] != store.key and store.customer_email and store.pid


def test_interrupt_of_the_tests_does_not_reach_the_store(petstore):
    # Fails unless the store leads a process group of its own.
    os.killpg(petstore.pid, 0)


def test_store_that_has_ended_is_an_error():
    store = Store()
    store.close()
    for function in store.requests, store.reset, lambda: store.failing_key("code=503"):
        with pytest.raises(RuntimeError, match="the store has ended"):
            function()
