"""Fixtures for pytest."""

from collections.abc import Iterator

import pytest

from petstoretest import Store


@pytest.fixture(scope="session")
def petstore() -> Iterator[Store]:
    """A store for all tests. With pytest-xdist, each worker has its own."""
    with Store() as store:
        yield store


@pytest.fixture
def petstore_per_test() -> Iterator[Store]:
    """A new store for each test."""
    with Store() as store:
        yield store
