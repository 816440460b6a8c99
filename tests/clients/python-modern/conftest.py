"""Fixtures for all tests: taskgate in front of a server of the older generation, over HTTP or around it over stdio."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import kit

pytest_plugins = ["reporting"]

LEGACY_SERVER = str(Path(kit.HERE.parent, "node/modern/legacy-server.mjs"))

TOOLS = Path(kit.HERE.parent, "task-tools.toml").read_text()


@dataclass(frozen=True)
class House:
    """What a client connects to: a URL, or the command of a stdio server."""

    target: kit.Target
    where: str


@pytest.fixture(scope="session", params=["http", "stdio"])
def house(request, tmp_path_factory):
    """One of each kind. pytest orders the tests so that few run at a time."""
    if request.param == "http":
        with over_http() as house:
            yield house
    else:
        config = tmp_path_factory.mktemp("taskgate") / "config.toml"
        # Each call may have a process of its own.
        notes = str(tmp_path_factory.mktemp("notes"))
        command = json.dumps([kit.node(), LEGACY_SERVER, "--stdio", "--notes", notes])
        tasks = '[tasks]\npoll_interval = "50ms"'
        config.write_text(f"{tasks}\n[[upstream]]\ncommand = {command}\n{TOOLS}")
        yield House([kit.TASKGATE, "stdio", "--config", str(config)], request.param)


@contextmanager
def over_http() -> Iterator[House]:
    server = kit.Process([kit.node(), LEGACY_SERVER])
    try:
        url = server.wait_for(r"listening on (http://\S+)")
        with kit.taskgate_with(url, tools=TOOLS) as gate:
            yield House(gate, "http")
    finally:
        server.stop()
