"""`taskgate stdio` around a real server from PyPI, driven by the SDK's own stdio client."""

import sys

import pytest
from mcp import McpError
from mcp.types import INVALID_PARAMS

import kit
from client import connect, dump, text
from talking import RELATED_TASK, Talk

SERVER = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "Europe/Berlin"]
WRAPPED = [kit.TASKGATE, "stdio", "--", *SERVER]
NOON = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"}


async def test_one_line_gives_a_server_its_tasks():
    talk = Talk()
    async with connect(SERVER) as direct, connect(WRAPPED, **talk.callbacks) as client:
        hello = dump(direct.hello)
        hello["capabilities"]["tasks"] = {
            "list": {},
            "cancel": {},
            "requests": {"tools": {"call": {}}},
        }
        assert dump(client.hello) == hello
        tools = dump(await direct.session.list_tools())
        for tool in tools["tools"]:
            tool["execution"] = tool.get("execution", {}) | {"taskSupport": "optional"}
        assert dump(await client.session.list_tools()) == tools

        plain = await direct.call("convert_time", **NOON)
        assert dump(await client.call("convert_time", **NOON)) == dump(plain)
        task = await client.create("convert_time", **NOON)
        assert task.status == "working"
        result = await client.collect(task.taskId)
        assert text(result) == text(plain)
        assert result.meta == {RELATED_TASK: {"taskId": task.taskId}}
        assert (await client.poll(task.taskId))[-1].status == "completed"
        assert [listed.taskId for listed in await client.list_all()] == [task.taskId]
        await talk.until(lambda: talk.states(task.taskId)[-1:] == ["completed"])

        with pytest.raises(McpError) as raised:
            await client.tasks.cancel_task(task.taskId)
        assert raised.value.error.code == INVALID_PARAMS
    # A line on stdout that is no message would be one of these.
    assert talk.faults == []


async def test_error_of_the_server_makes_a_failed_task():
    async with connect(WRAPPED) as client:
        task = await client.create("get_current_time", timezone="Moon/Tycho")
        last = (await client.poll(task.taskId))[-1]
        assert last.status == "failed"
        assert "Moon/Tycho" in last.statusMessage


async def test_url_is_wrapped_as_well():
    talk = Talk()
    with kit.plain_server() as (_, url):
        command = [kit.TASKGATE, "stdio", "--upstream", url]
        async with connect(command, **talk.callbacks) as client:
            task = await client.create("question", kinds=["form", "sampling"])
            result = text(await client.collect(task.taskId))
            assert result == "accept: Ada, small-model: you said: two plus two"
            # The SDK's client breaks at a message that comes while it leaves.
            await talk.until(lambda: talk.states(task.taskId)[-1:] == ["completed"])
    assert len(talk.asked) == 2
    assert talk.faults == []
