"""Fixtures for pytest."""

import os
from collections.abc import Iterator

import pytest

from petstoretest import Store


def pytest_configure() -> None:
    """Adds the addresses of stores to `NO_PROXY`, so that clients reach them where a proxy is set."""
    hosts = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    local = "127.0.0.1,::1,localhost"
    # `*` stands for all hosts only if it is alone. Workers of pytest-xdist inherit the variables.
    if hosts != "*" and not hosts.endswith(local):
        hosts = f"{hosts},{local}" if hosts else local
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = hosts


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
