"""Tasks from call to result, in front of every kind of server that has none."""

import anyio
import pytest
from mcp import McpError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

import kit
from client import connect, dump, text

RELATED_TASK = "io.modelcontextprotocol/related-task"
COUNTING = ["json", "sse", "stateless", "old", "stdio"]


def with_related_task(result, task_id):
    """The plain call's result as `tasks/result` should give it."""
    wanted = dump(result)
    wanted["_meta"] = wanted.get("_meta", {}) | {RELATED_TASK: {"taskId": task_id}}
    return wanted


async def test_task_is_created_polled_and_collected(gate):
    slow = gate.tools.slow
    async with connect(gate.url) as client:
        task = await client.create(slow.name, ttl=600_000, **slow.arguments)
        assert task.status == "working"
        assert task.ttl == 600_000
        assert task.pollInterval == 50
        assert task.createdAt <= task.lastUpdatedAt

        states = await client.poll(task.taskId)
        assert {state.status for state in states[:-1]} == {"working"}
        assert states[-1].status == "completed"
        assert {state.taskId for state in states} == {task.taskId}
        assert {state.createdAt for state in states} == {task.createdAt}
        assert states[-1].lastUpdatedAt > task.createdAt

        result = await client.collect(task.taskId)
        assert text(result) == slow.text
        plain = await client.call(slow.name, **slow.arguments)
        assert dump(result) == with_related_task(plain, task.taskId)


async def test_result_is_awaited_and_can_be_collected_again(gate):
    slow = gate.tools.slow
    async with connect(gate.url) as client:
        task = await client.create(slow.name, **slow.arguments)
        results = []

        async def wait():
            results.append(dump(await client.collect(task.taskId)))

        async with anyio.create_task_group() as waiters:
            for _ in range(3):
                waiters.start_soon(wait)
        await wait()

        plain = await client.call(slow.name, **slow.arguments)
        assert results == [with_related_task(plain, task.taskId)] * 4


async def test_ttl_is_never_shorter_than_the_call_may_take(gate):
    quick = gate.tools.quick
    async with connect(gate.url) as client:
        task = await client.create(quick.name, ttl=30_000, **quick.arguments)
        # The configured timeout is one minute; some time to collect comes on top.
        assert task.ttl >= 60_000
        assert text(await client.collect(task.taskId)) == quick.text


async def test_list_has_all_tasks_of_the_session_and_no_others(gate):
    quick = gate.tools.quick
    async with connect(gate.url) as client, connect(gate.url) as stranger:
        made = [await client.create(quick.name, **quick.arguments) for _ in range(3)]
        for task in made:
            await client.collect(task.taskId)
        other = await stranger.create(quick.name, **quick.arguments)

        listed = await client.list_all()
        assert {task.taskId for task in listed} == {task.taskId for task in made}
        assert len(listed) == 3
        assert {task.status for task in listed} == {"completed"}
        assert [task.taskId for task in await stranger.list_all()] == [other.taskId]


async def test_bad_cursor_is_refused(gate):
    async with connect(gate.url) as client:
        with pytest.raises(McpError) as raised:
            await client.tasks.list_tasks("no such cursor")
        assert raised.value.error.code == INVALID_PARAMS


async def test_unknown_and_foreign_task_ids_get_the_same_answer(gate):
    quick = gate.tools.quick
    async with connect(gate.url) as client, connect(gate.url) as owner:
        task = await owner.create(quick.name, **quick.arguments)
        errors = []
        for task_id in ("no-such-task", task.taskId):
            for ask in (client.tasks.get_task, client.collect, client.tasks.cancel_task):
                with pytest.raises(McpError) as raised:
                    await ask(task_id)
                assert raised.value.error.code == INVALID_PARAMS
                errors.append(raised.value.error.message.replace(task_id, "ID"))
        assert errors[:3] == errors[3:]
        assert text(await owner.collect(task.taskId)) == quick.text


async def test_cancelled_task_stays_cancelled(gate):
    hang = gate.tools.hang
    async with connect(gate.url) as client:
        task = await client.create(hang.name, **hang.arguments)
        async with anyio.create_task_group() as waiters:

            async def wait():
                with pytest.raises(McpError):
                    await client.collect(task.taskId)

            waiters.start_soon(wait)
            cancelled = await client.tasks.cancel_task(task.taskId)
        assert (cancelled.taskId, cancelled.status) == (task.taskId, "cancelled")
        assert (await client.tasks.get_task(task.taskId)).status == "cancelled"

        with pytest.raises(McpError) as raised:
            await client.tasks.cancel_task(task.taskId)
        assert raised.value.error.code == INVALID_PARAMS
        assert (await client.tasks.get_task(task.taskId)).status == "cancelled"


@pytest.mark.parametrize("gate", COUNTING, indirect=True)
async def test_server_sees_the_cancellation(gate):
    async with connect(gate.url) as client:
        started = await client.count("hang")
        ended = await client.count("hang cancelled")
        task = await client.create("hang")
        await client.reached("hang", started + 1)
        await client.tasks.cancel_task(task.taskId)
        await client.reached("hang cancelled", ended + 1)
        assert await client.count("hang cancelled") == ended + 1


async def test_finished_task_cannot_be_cancelled(gate):
    quick = gate.tools.quick
    async with connect(gate.url) as client:
        task = await client.create(quick.name, **quick.arguments)
        result = dump(await client.collect(task.taskId))
        with pytest.raises(McpError) as raised:
            await client.tasks.cancel_task(task.taskId)
        assert raised.value.error.code == INVALID_PARAMS
        assert (await client.tasks.get_task(task.taskId)).status == "completed"
        assert dump(await client.collect(task.taskId)) == result


async def test_error_result_makes_a_failed_task(gate):
    fail = gate.tools.fail
    async with connect(gate.url) as client:
        task = await client.create(fail.name, **fail.arguments)
        assert task.status == "working"
        last = (await client.poll(task.taskId))[-1]
        assert last.status == "failed"
        assert fail.text in last.statusMessage

        result = await client.collect(task.taskId)
        assert result.isError
        assert text(result) == fail.text


@pytest.mark.parametrize("gate", COUNTING, indirect=True)
async def test_json_rpc_error_makes_a_failed_task(gate):
    async with connect(gate.server) as direct:
        with pytest.raises(McpError) as expected:
            await direct.call("refuse")
    async with connect(gate.url) as client:
        task = await client.create("refuse")
        last = (await client.poll(task.taskId))[-1]
        assert last.status == "failed"
        assert "sign in first" in last.statusMessage
        with pytest.raises(McpError) as raised:
            await client.collect(task.taskId)
        assert dump(raised.value.error) == dump(expected.value.error)
        assert raised.value.error.data["elicitations"][0]["elicitationId"] == "e1"


@pytest.mark.parametrize("gate", COUNTING, indirect=True)
async def test_one_task_is_one_call_of_the_tool(gate):
    async with connect(gate.url) as client:
        before = await client.count("echo")
        task = await client.create("echo", text="once")
        for _ in range(3):
            assert text(await client.collect(task.taskId)) == "once"
        assert await client.count("echo") == before + 1


async def test_task_fails_when_its_server_is_gone():
    with kit.plain_server() as (server, upstream), kit.taskgate("--upstream", upstream) as url:
        async with connect(url) as client:
            hanging = await client.create("hang")
            await client.reached("hang", 1)
            server.kill()

            with pytest.raises(McpError) as raised:
                await client.collect(hanging.taskId)
            assert raised.value.error.code == INTERNAL_ERROR
            state = await client.tasks.get_task(hanging.taskId)
            assert state.status == "failed"
            assert state.statusMessage

            # A plain call fails by itself: the session and its tasks go on.
            with pytest.raises(McpError) as raised:
                await client.call("echo", text="anyone?")
            assert raised.value.error.code == INTERNAL_ERROR
            late = await client.create("echo", text="anyone?")
            with pytest.raises(McpError):
                await client.collect(late.taskId)
            assert (await client.tasks.get_task(late.taskId)).status == "failed"
            assert len(await client.list_all()) == 2
