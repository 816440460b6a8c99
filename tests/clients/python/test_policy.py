"""What the operator's policy says of a tool, as the SDK's client sees it."""

import pytest
from mcp import McpError
from mcp.types import METHOD_NOT_FOUND

import kit
from client import connect, text

TOOLS = """
[upstream.tools.echo]
support = "forbidden"

[upstream.tools.slow]
support = "required"
immediate_response = "It will take a while."
"""


@pytest.fixture(scope="module")
def url():
    with kit.plain_server() as (_, server), kit.taskgate_with(server, tools=TOOLS) as url:
        yield url


async def test_tools_list_tells_the_policy(url):
    async with connect(url) as client:
        tools = (await client.session.list_tools()).tools
        support = {tool.name: tool.execution.taskSupport for tool in tools}
        assert support.pop("echo") == "forbidden"
        assert support.pop("slow") == "required"
        assert set(support.values()) == {"optional"}


async def test_forbidden_tool_cannot_be_a_task(url):
    async with connect(url) as client:
        before = await client.count("echo")
        with pytest.raises(McpError) as raised:
            await client.create("echo", text="hello")
        assert raised.value.error.code == METHOD_NOT_FOUND
        assert "echo" in raised.value.error.message
        assert text(await client.call("echo", text="hello")) == "hello"
        assert await client.count("echo") == before + 1


async def test_required_tool_must_be_a_task(url):
    async with connect(url) as client:
        before = await client.count("slow")
        with pytest.raises(McpError) as raised:
            await client.call("slow", ms=1)
        assert raised.value.error.code == METHOD_NOT_FOUND
        assert "slow" in raised.value.error.message
        assert await client.count("slow") == before

        created = await client.tasks.call_tool_as_task("slow", {"ms": 1})
        assert created.meta == {
            "io.modelcontextprotocol/model-immediate-response": "It will take a while."
        }
        assert text(await client.collect(created.task.taskId)) == "took 1 ms"
