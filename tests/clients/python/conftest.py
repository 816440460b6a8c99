"""Fixtures for all tests: a taskgate in front of each kind of server."""

import signal

import pytest

import kinds
import kit

ALL = ["json", "sse", "stateless", "old", "stdio", "replaced"]


def pytest_configure():
    # On SIGTERM, too, pytest should stop what it started, as it does on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for process in kit.Process.running:
            report.sections.append((" ".join(process.command), "\n".join(process.lines[-50:])))
    return report


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session", params=ALL)
def gate(request):
    """One of each kind. pytest orders the tests so that few run at a time."""
    with kinds.gate(request.param) as gate:
        yield gate
