"""FastMCP 4 with its tasks: calls become tasks and end as if they had not, or give a handle to be driven by hand."""

import anyio
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp_tasks import call_tool_task

import kit

TASKS = "io.modelcontextprotocol/tasks"


class Asked:
    """Answers every form, and keeps what was asked."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    async def __call__(self, message, response_type, params, context):
        self.messages.append(message)
        fields = params.requested_schema["properties"]
        return {
            name: True if field["type"] == "boolean" else "Ada" for name, field in fields.items()
        }


def connect(house, **handlers) -> Client:
    target = house.target
    if isinstance(target, list):
        # Kept alive, the process would serve the next client too.
        target = StdioTransport(target[0], target[1:], keep_alive=False)
    return Client(target, timeout=kit.PATIENCE, **handlers)


def text(result) -> str:
    (content,) = result.content
    return content.text


async def test_connection_is_modern_and_has_tasks(house):
    async with connect(house) as client:
        assert client.session.protocol_version == "2026-07-28"
        assert client.session.server_capabilities.extensions[TASKS] == {}
        assert {"greet", "slow_compute"} <= {tool.name for tool in await client.list_tools()}


async def test_fast_call_is_answered_at_once(house):
    async with connect(house) as client:
        assert text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"
        with pytest.raises(ToolError, match="did not run as a task"):
            await call_tool_task(client, "greet", {"name": "Ada"})


async def test_slow_call_ends_as_if_it_were_no_task(house):
    async with connect(house) as client:
        arguments = {"seconds": 2, "label": f"transparent {house.where}"}
        result = await client.call_tool("slow_compute", arguments)
        assert text(result) == f"computed transparent {house.where} for 2 s"


async def test_slow_call_gives_a_handle_whose_state_is_seen(house):
    async with connect(house) as client:
        arguments = {"seconds": 2, "label": f"handle {house.where}"}
        task = await call_tool_task(client, "slow_compute", arguments)
        first = await task.status()
        assert first.status == "working"
        assert first.task_id == task.task_id
        assert first.ttl_ms > 0
        assert first.poll_interval_ms > 0
        assert text(await task) == f"computed handle {house.where} for 2 s"
        assert (await task.wait()).status == "completed"


async def test_question_of_a_task_is_asked_once(house):
    asked = Asked()
    async with connect(house, elicitation_handler=asked) as client:
        result = await client.call_tool("confirm_delete", {"filename": "a.txt"})
        assert text(result) == "deleted a.txt"
    assert asked.messages == ["Delete a.txt?"]


async def test_two_questions_of_a_task_are_each_asked_once(house):
    asked = Asked()
    async with connect(house, elicitation_handler=asked) as client:
        assert text(await client.call_tool("multi_input")) == "Ada, true"
    assert sorted(asked.messages) == ["Go on?", "Who is there?"]


async def test_question_before_a_task_is_answered_and_the_call_becomes_one(house):
    asked = Asked()
    async with connect(house, elicitation_handler=asked) as client:
        assert text(await client.call_tool("test_tool_with_task")) == "Hello, Ada!"
    assert asked.messages == ["What is your name?"]


async def test_tool_that_fails_raises_what_it_said(house):
    async with connect(house) as client:
        with pytest.raises(ToolError, match="the job has failed"):
            await client.call_tool("failing_job")


async def test_error_of_the_protocol_raises_what_it_said(house):
    async with connect(house) as client:
        with pytest.raises(ToolError, match="the job is gone"):
            await client.call_tool("protocol_error_job")


async def test_cancelled_task_is_cancelled_at_the_server(house):
    async with connect(house) as client:
        label = f"cancelled {house.where}"
        task = await call_tool_task(client, "slow_compute", {"seconds": 60, "label": label})
        await task.cancel()
        assert (await task.wait(timeout=kit.PATIENCE)).status == "cancelled"
        with pytest.raises(ToolError, match="cancelled"):
            await task
        ended = await client.call_tool("wait_until", {"label": label, "what": "aborted"})
        assert text(ended) == f"{label} aborted"


async def test_many_tasks_at_once_each_end_as_their_own(house):
    async with connect(house) as client:
        results = {}

        async def run(label: str) -> None:
            arguments = {"seconds": 2, "label": label}
            results[label] = text(await client.call_tool("slow_compute", arguments))

        labels = [f"many {at} {house.where}" for at in range(10)]
        async with anyio.create_task_group() as calls:
            for label in labels:
                calls.start_soon(run, label)
        assert results == {label: f"computed {label} for 2 s" for label in labels}
