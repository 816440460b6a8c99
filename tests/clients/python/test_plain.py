"""Requests that have nothing to do with tasks pass as if taskgate were not there."""

import logging

import pytest
from mcp import McpError
from mcp.types import CreateMessageResult, ElicitResult, TextContent

from client import connect, dump, text

TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


async def answer_elicitation(context, params):
    return ElicitResult(action="accept", content={"name": "Ada"})


async def answer_sampling(context, params):
    said = f"you said: {params.messages[0].content.text}"
    return CreateMessageResult(
        role="assistant", model="small-model", content=TextContent(type="text", text=said)
    )


CALLBACKS = {"elicitation_callback": answer_elicitation, "sampling_callback": answer_sampling}


async def test_initialize_adds_the_tasks_capability_and_nothing_else(gate):
    async with connect(gate.server) as direct, connect(gate.url) as client:
        expected = dump(direct.hello)
        expected["capabilities"]["tasks"] = TASKS
        assert dump(client.hello) == expected
        assert client.hello.protocolVersion == "2025-11-25"


async def test_tools_list_sets_task_support_and_nothing_else(gate):
    async with connect(gate.server) as direct, connect(gate.url) as client:
        expected = dump(await direct.session.list_tools())
        for tool in expected["tools"]:
            tool["execution"] = tool.get("execution", {}) | {"taskSupport": "optional"}
        assert dump(await client.session.list_tools()) == expected


async def test_plain_call_gives_what_the_server_gives(gate):
    quick = gate.tools.quick
    async with connect(gate.server) as direct, connect(gate.url) as client:
        expected = await direct.call(quick.name, **quick.arguments)
        result = await client.call(quick.name, **quick.arguments)
        assert text(result) == quick.text
        assert dump(result) == dump(expected)
        assert "_meta" not in dump(result)
        assert await client.list_all() == []


async def test_plain_call_gives_the_servers_error_result(gate):
    fail = gate.tools.fail
    async with connect(gate.server) as direct, connect(gate.url) as client:
        expected = await direct.call(fail.name, **fail.arguments)
        result = await client.call(fail.name, **fail.arguments)
        assert result.isError
        assert text(result) == fail.text
        assert dump(result) == dump(expected)


async def test_unknown_resource_gives_the_servers_error(gate):
    async with connect(gate.server) as direct, connect(gate.url) as client:
        errors = []
        for side in (direct, client):
            with pytest.raises(McpError) as raised:
                await side.session.read_resource("demo://no/such/resource")
            errors.append(dump(raised.value.error))
        assert errors[0] == errors[1]


# A server that answers with JSON has no way to send progress during a call.
@pytest.mark.parametrize("gate", ["sse", "stateless", "old", "stdio", "replaced"], indirect=True)
async def test_progress_of_a_plain_call_comes_through_in_order(gate):
    slow = gate.tools.slow
    seen = []

    async def note(progress, total, message):
        seen.append((progress, total, message))

    async with connect(gate.url) as client:
        result = await client.session.call_tool(slow.name, slow.arguments, progress_callback=note)
        assert text(result) == slow.text
        assert seen == gate.tools.progress


# The same holds for elicitation; and without sessions the answer would not find the call.
@pytest.mark.parametrize("gate", ["sse", "old", "stdio", "replaced"], indirect=True)
async def test_elicitation_in_a_plain_call_reaches_the_client_and_comes_back(gate):
    ask = gate.tools.ask
    async with connect(gate.url, **CALLBACKS) as client:
        result = await client.call(ask.name, **ask.arguments)
        assert ask.text in "".join(content.text for content in result.content)


# The Python server sends this on the GET stream, also when it answers calls with JSON.
@pytest.mark.parametrize("gate", ["json", "sse", "old", "stdio", "replaced"], indirect=True)
async def test_sampling_in_a_plain_call_reaches_the_client_and_comes_back(gate):
    sample = gate.tools.sample
    async with connect(gate.url, **CALLBACKS) as client:
        await client.listening()
        result = await client.call(sample.name, **sample.arguments)
        assert sample.text in text(result)


async def test_session_ends_without_an_error_in_the_client(gate, caplog):
    quick = gate.tools.quick
    async with connect(gate.url) as client:
        await client.call(quick.name, **quick.arguments)
    # The SDK logs an end of the session that was refused, but does not raise.
    complaints = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in complaints] == []
