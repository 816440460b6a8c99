"""A host without tasks, as a model drives it: it calls, reads the words of the answer, and makes the call that they name."""

import json
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kit

SLOW_SECONDS = 4
"""How long the tool takes, in front of a host that waits less long for each call."""
PATIENCE = 2.5

SERVER = [kit.node(), str(kit.HERE.parent / "node/slow-tools-server.mjs"), "--stdio"]
SETTINGS = "[upstream.tools.report]\njob_after = \"500ms\"\n"

# Calls a tool by its name with arguments, with the host's patience.
Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


@contextmanager
def over_http(settings: str = SETTINGS) -> Iterator[str]:
    """The URL of a taskgate whose tool `report` has jobs, unless the settings are others."""
    with kit.taskgate_with(SERVER, tools=settings) as url:
        yield url


@contextmanager
def over_stdio() -> Iterator[list[str]]:
    """The command of a taskgate with the same settings."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.toml")
        path.write_text(f"[[upstream]]\ncommand = {json.dumps(SERVER)}\n{SETTINGS}")
        yield [kit.TASKGATE, "stdio", "--config", str(path)]


def text(result) -> str:
    (content,) = result.content
    return content.text


async def gets_a_job(call: Call) -> Any:
    """Calls the slow tool, and does what the answers say until there is a result, which is returned."""
    result = await call("report", {"ms": SLOW_SECONDS * 1000})
    assert "is still running, as job" in text(result)
    assert "Do not call report again for this, it would run twice." in text(result)
    waits = 0
    while "is still running" in text(result):
        name, arguments = re.search(r"call (\w+) with (\{.*?\})", text(result)).groups()
        result = await call(name, json.loads(arguments) | {"seconds": 1})
        waits += 1
    assert waits > 1
    assert text(result) == f"the report took {SLOW_SECONDS * 1000} ms"
    assert text(await call("count", {})) == "1"
    return result
