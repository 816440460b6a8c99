"""Fixtures for all tests: a taskgate in front of each kind of server."""

import pytest

import kinds

pytest_plugins = ["reporting"]

ALL = ["json", "sse", "stateless", "old", "stdio", "replaced"]


@pytest.fixture(scope="session", params=ALL)
def gate(request):
    """One of each kind. pytest orders the tests so that few run at a time."""
    with kinds.gate(request.param) as gate:
        yield gate
