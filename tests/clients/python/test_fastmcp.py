"""FastMCP's client: a call as a task, with callbacks for its status."""

import anyio
import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError

import kit

pytestmark = pytest.mark.parametrize("gate", ["sse", "stdio"], indirect=True)


class Told:
    """The states that a callback got; a test can wait for them."""

    def __init__(self, task) -> None:
        self.states = []
        self._news = anyio.Event()
        task.on_status_change(self._note)

    def _note(self, state) -> None:
        self.states.append(state)
        self._news.set()
        self._news = anyio.Event()

    async def until(self, status: str):
        with anyio.fail_after(kit.PATIENCE):
            while not any(state.status == status for state in self.states):
                await self._news.wait()
        return self.states[-1]


async def test_call_as_a_task_tells_its_status_and_gives_its_result(gate):
    key = f"fastmcp {gate.kind}"
    async with Client(gate.url) as client:
        task = await client.call_tool("paced", {"key": key, "steps": 1}, task=True)
        assert not task.returned_immediately
        told = Told(task)
        await client.call_tool("advance", {"key": key})
        await client.call_tool("advance", {"key": key})
        last = await told.until("completed")
        assert last.taskId == task.task_id
        assert (await task).structured_content == {"result": "started 1 times"}
        listed = (await client.list_tasks())["tasks"]
        assert [one["taskId"] for one in listed] == [task.task_id]


async def test_question_within_a_task_is_answered(gate):
    asked = []

    async def answer(message, response_type, params, context):
        asked.append(message)
        return {"name": "Ada"}

    async with Client(gate.url, elicitation_handler=answer) as client:
        task = await client.call_tool("question", {"kinds": ["form"]}, task=True)
        told = Told(task)
        await told.until("completed")
        assert (await task).structured_content == {"result": "accept: Ada"}
    assert asked == ["Who is there?"]


async def test_failing_task_raises_what_the_tool_said(gate):
    async with Client(gate.url) as client:
        task = await client.call_tool("fail", {}, task=True)
        with pytest.raises(ToolError, match="the disk is full"):
            await task


async def test_cancelled_task_tells_its_status_and_is_cancelled_at_the_server(gate):
    async with Client(gate.url) as client:
        before = (await client.call_tool("stats")).structured_content
        task = await client.call_tool("hang", {}, task=True)
        told = Told(task)
        await client.call_tool("reached", {"event": "hang", "count": before.get("hang", 0) + 1})
        await task.cancel()
        await told.until("cancelled")
        assert (await task.status()).status == "cancelled"
        count = before.get("hang cancelled", 0) + 1
        await client.call_tool("reached", {"event": "hang cancelled", "count": count})
