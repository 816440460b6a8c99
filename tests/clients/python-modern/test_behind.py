"""A server of the Python SDK 2.x stands behind, over HTTP and as a process: FastMCP's tasks work in front of it."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp_tasks import call_tool_task

import kit

SERVER = [sys.executable, str(Path(__file__).with_name("modern_server.py"))]
TOOLS = """
[upstream.tools.slow]
task_after = "100ms"
[upstream.tools.delete]
task_after = "0s"
"""


@contextmanager
def over_http():
    server = kit.Process(SERVER)
    try:
        url = server.wait_for(r"listening on (http://\S+)")
        server.wait_for(r"(Uvicorn running)")
        with kit.taskgate_with(url, tools=TOOLS) as gate:
            yield gate
    finally:
        server.stop()


@pytest.fixture(scope="module", params=["http", "stdio"])
def gate(request, tmp_path_factory):
    if request.param == "http":
        with over_http() as gate:
            yield gate
        return
    config = tmp_path_factory.mktemp("taskgate") / "config.toml"
    config.write_text(f"[[upstream]]\ncommand = {json.dumps([*SERVER, '--stdio'])}\n{TOOLS}")
    gate = kit.Process([kit.TASKGATE, "serve", "--listen", "127.0.0.1:0", "--config", str(config)])
    try:
        yield gate.wait_for(r"(http://\S+/mcp)")
    finally:
        gate.stop()


async def confirm(message, response_type, params, context):
    return {"confirm": True}


def text(result) -> str:
    (content,) = result.content
    return content.text


async def test_calls_pass_and_become_tasks(gate):
    async with Client(gate, timeout=kit.PATIENCE) as client:
        assert client.session.protocol_version == "2026-07-28"
        assert text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"
        task = await call_tool_task(client, "slow", {"seconds": 1})
        assert text(await task.result()) == "slept"


async def test_question_of_the_server_is_one_of_the_task(gate):
    async with Client(gate, timeout=kit.PATIENCE, elicitation_handler=confirm) as client:
        task = await call_tool_task(client, "delete", {})
        assert text(await task.result()) == "deleted"
