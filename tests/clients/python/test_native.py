"""server-everything has tasks of its own: left alone, they pass; by default taskgate adds its own beside them."""

import pytest
from mcp import McpError
from mcp.types import INVALID_PARAMS, ElicitResult

import kit
from client import connect, dump, text

RESEARCH = "simulate-research-query"


async def answer_elicitation(context, params):
    return ElicitResult(action="accept", content={"interpretation": "technical"})


@pytest.fixture(scope="module")
def url():
    with kit.taskgate_with(kit.everything_command(), upstream='native = "keep"') as url:
        yield url


@pytest.fixture(scope="module")
def both():
    with kit.taskgate("--", *kit.everything_command()) as url:
        yield url


async def test_nothing_is_added_to_what_the_server_declares(url):
    async with connect(kit.everything_command()) as direct, connect(url) as client:
        assert dump(client.hello) == dump(direct.hello)
        assert client.hello.capabilities.tasks.requests.tools.call is not None
        listed = dump(await client.session.list_tools())
        assert listed == dump(await direct.session.list_tools())
        support = {tool["name"]: tool["execution"]["taskSupport"] for tool in listed["tools"]}
        assert support[RESEARCH] == "required"
        assert support["echo"] == "forbidden"


async def test_native_task_is_created_listed_polled_and_collected(url):
    async with connect(url) as client:
        task = await client.create(RESEARCH, topic="bees")
        # The server's figures, not taskgate's.
        assert (task.status, task.ttl, task.pollInterval) == ("working", 300_000, 1000)
        assert [listed.taskId for listed in await client.list_all()] == [task.taskId]

        states = await client.poll(task.taskId)
        assert {state.taskId for state in states} == {task.taskId}
        assert "Gathering sources..." in {state.statusMessage for state in states}
        assert states[-1].status == "completed"

        result = await client.collect(task.taskId)
        assert text(result).startswith("# Research Report: bees\n")
        assert result.meta == {"io.modelcontextprotocol/related-task": {"taskId": task.taskId}}


async def test_native_task_elicits_on_its_result_stream(url):
    async with connect(url, elicitation_callback=answer_elicitation) as client:
        task = await client.create(RESEARCH, topic="bees", ambiguous=True)
        result = await client.collect(task.taskId)
        assert text(result).startswith("# Research Report: bees (technical)\n")


async def test_native_task_is_cancelled_by_the_server(url):
    async with connect(url) as client:
        task = await client.create(RESEARCH, topic="bees")
        cancelled = await client.tasks.cancel_task(task.taskId)
        assert cancelled.status == "cancelled"
        assert cancelled.statusMessage == "Client cancelled task execution."
        with pytest.raises(McpError) as raised:
            await client.tasks.cancel_task(task.taskId)
        assert raised.value.error.code == INVALID_PARAMS
        assert "Cannot cancel task in terminal status" in raised.value.error.message


async def test_errors_are_the_servers_own(url):
    async def provoke(client):
        for attempt in (
            lambda: client.create("echo", message="echo takes no task"),
            lambda: client.create(RESEARCH),
            lambda: client.tasks.get_task("no-such-task"),
            lambda: client.collect("no-such-task"),
            lambda: client.tasks.list_tasks("no such cursor"),
        ):
            with pytest.raises(McpError) as raised:
                await attempt()
            yield dump(raised.value.error)

    async with connect(kit.everything_command()) as direct, connect(url) as client:
        expected = [error async for error in provoke(direct)]
        assert [error async for error in provoke(client)] == expected
        assert [error["code"] for error in expected] == [INVALID_PARAMS] * 5


async def test_plain_call_of_a_tool_that_requires_a_task_is_refused_by_the_server(url):
    async with connect(url) as client:
        result = await client.call(RESEARCH, topic="bees")
        assert result.isError
        assert "requires task augmentation" in text(result)


async def test_tools_without_native_tasks_get_taskgates_beside_them(both):
    async with connect(both) as client:
        assert client.hello.capabilities.tasks.requests.tools.call is not None
        listed = dump(await client.session.list_tools())
        support = {tool["name"]: tool["execution"]["taskSupport"] for tool in listed["tools"]}
        assert support[RESEARCH] == "required"
        assert support["echo"] == "optional"

        theirs = await client.create(RESEARCH, topic="bees")
        ours = await client.create("echo", message="grüße")
        assert theirs.ttl == 300_000
        assert [task.taskId for task in await client.list_all()] == [ours.taskId, theirs.taskId]
        assert (await client.poll(ours.taskId))[-1].status == "completed"
        assert text(await client.collect(ours.taskId)) == "Echo: grüße"
        assert (await client.poll(theirs.taskId))[-1].status == "completed"
        assert text(await client.collect(theirs.taskId)).startswith("# Research Report: bees\n")


async def test_call_before_any_list_is_a_task_of_the_right_side(both):
    async with connect(both) as client:
        assert (await client.create(RESEARCH, topic="bees")).ttl == 300_000
        assert (await client.create("echo", message="hello")).ttl != 300_000
