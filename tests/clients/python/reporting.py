"""What every folder of pytest tests here needs: an end that leaves no process, and what processes said in a failure."""

import signal

import pytest

import kit


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
