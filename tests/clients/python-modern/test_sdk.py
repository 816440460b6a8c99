"""The Python SDK's client 2.x, which knows no tasks: questions by multiple round trips, progress, list changes."""

from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

import kit

METHOD_CAPABILITY = -32021


class Asked:
    """Answers every kind of question, and keeps what was asked."""

    def __init__(self) -> None:
        self.items: list[str] = []

    async def elicit(self, context, params) -> types.ElicitResult:
        self.items.append(params.message)
        fields = params.requested_schema["properties"]
        content = {name: field["type"] == "boolean" or "Ada" for name, field in fields.items()}
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, context, params) -> types.CreateMessageResult:
        self.items.append(params.messages[0].content.text)
        answer = types.TextContent(type="text", text="an answer")
        return types.CreateMessageResult(role="assistant", model="test-model", content=answer)

    async def roots(self, context) -> types.ListRootsResult:
        self.items.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])

    @property
    def callbacks(self):
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }


@asynccontextmanager
async def connect(house, mode="2026-07-28", **callbacks):
    target = house.target
    if isinstance(target, list):
        target = StdioServerParameters(command=target[0], args=target[1:])
    async with Client(
        target, mode=mode, read_timeout_seconds=kit.PATIENCE, **callbacks
    ) as client:
        yield client


def text(result) -> str:
    (content,) = result.content
    return content.text


async def test_discovery_finds_the_newer_generation(house):
    async with connect(house, mode="auto") as client:
        assert client.session.protocol_version == "2026-07-28"
        assert text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"


async def test_legacy_mode_finds_the_older_generation(house):
    async with connect(house, mode="legacy") as client:
        assert client.session.protocol_version == "2025-11-25"
        assert text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"


@pytest.mark.parametrize(
    ("tool", "asks", "says"),
    [
        ("test_input_required_result_elicitation", "What is your name?", "Hello, Ada!"),
        ("test_input_required_result_sampling", "What is the capital of France?", "an answer"),
        ("test_input_required_result_list_roots", "roots", "file:///home/ada"),
    ],
)
async def test_question_is_asked_once_and_the_call_goes_on(house, tool, asks, says):
    asked = Asked()
    async with connect(house, **asked.callbacks) as client:
        assert text(await client.call_tool(tool)) == says
    assert asked.items == [asks]


async def test_three_questions_at_once_are_each_asked_once(house):
    asked = Asked()
    async with connect(house, **asked.callbacks) as client:
        result = await client.call_tool("test_input_required_result_multiple_inputs")
        assert text(result) == "Hello, Ada! an answer file:///home/ada"
    assert sorted(asked.items) == ["Generate a greeting", "What is your name?", "roots"]


async def test_questions_one_after_the_other_take_as_many_rounds(house):
    asked = Asked()
    async with connect(house, **asked.callbacks) as client:
        result = await client.call_tool("test_input_required_result_multi_round")
        assert text(result) == "Ada likes Ada"
    assert asked.items == ["Step 1: What is your name?", "Step 2: What is your favorite color?"]


async def test_prompt_may_ask_as_well(house):
    asked = Asked()
    async with connect(house, **asked.callbacks) as client:
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert prompt.messages[0].content.text == "Use this context: Ada"
    assert asked.items == ["What context should the prompt use?"]


async def test_server_sees_what_this_client_can_be_asked(house):
    asked = Asked()
    async with connect(house, sampling_callback=asked.sample) as client:
        result = await client.call_tool("test_input_required_result_capabilities")
        assert text(result) == "1 answers"
    assert asked.items == ["What is the capital of France?"]


async def test_refused_question_refuses_the_call(house):
    async def refuse(context, params):
        return types.ErrorData(code=-1, message="not now")

    async with connect(house, elicitation_callback=refuse) as client:
        with pytest.raises(MCPError, match="not now"):
            await client.call_tool("test_input_required_result_elicitation")
        # The parked call, which nothing answers, holds up no other.
        assert text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"


async def test_slow_call_is_answered_plainly(house):
    async with connect(house) as client:
        result = await client.call_tool("slow_compute", {"seconds": 2, "label": "plain"})
        assert text(result) == "computed plain for 2 s"


async def test_tool_that_is_always_a_task_is_refused(house):
    async with connect(house) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("failing_job")
        assert raised.value.code == METHOD_CAPABILITY
        extensions = raised.value.data["requiredCapabilities"]["extensions"]
        assert extensions == {"io.modelcontextprotocol/tasks": {}}


async def test_progress_comes_with_the_call(house):
    seen = []

    async def note(progress, total, message):
        seen.append((progress, total))

    async with connect(house) as client:
        await client.call_tool("test_tool_with_progress", progress_callback=note)
    assert seen == [(0, 100), (50, 100), (100, 100)]


async def test_list_changes_are_told_to_those_who_listen(house):
    async with connect(house) as client:
        with anyio.fail_after(kit.PATIENCE):
            async with client.listen(prompts_list_changed=True) as subscription:
                await client.call_tool("test_trigger_tool_change")
                await client.call_tool("test_trigger_prompt_change")
                async for event in subscription:
                    assert type(event).__name__ == "PromptsListChanged"
                    break


async def test_call_that_is_given_up_is_cancelled_at_the_server(house):
    label = f"given up {house.where}"
    async with connect(house) as client:
        async with anyio.create_task_group() as calls:
            arguments = {"seconds": 60, "label": label}
            calls.start_soon(client.call_tool, "slow_compute", arguments)
            await client.call_tool("wait_until", {"label": label, "what": "started"})
            calls.cancel_scope.cancel()
        ended = await client.call_tool("wait_until", {"label": label, "what": "aborted"})
        assert text(ended) == f"{label} aborted"
