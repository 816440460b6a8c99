"""A server's questions during a task reach the SDK's client, and its answers the server."""

import anyio
import pytest
from mcp.types import METHOD_NOT_FOUND

from client import connect, dump, text
from talking import ANSWERED, RELATED_TASK, Talk

# In front of these, every question is a part of its call: a server that answers with JSON, or
# without sessions, has no way to ask.
ASKING = pytest.mark.parametrize("gate", ["sse", "stdio"], indirect=True)
STREAMS = pytest.mark.parametrize("listen", [False, True], ids=["tasks/result", "GET stream"])


async def wait_for_input(client, task_id):
    async for state in client.tasks.poll_task(task_id):
        if state.status == "input_required":
            return
    raise AssertionError("the task has ended")


@ASKING
@STREAMS
async def test_question_is_asked_once_with_the_tasks_id_and_answered(gate, listen):
    talk = Talk()
    tasks = []
    async with connect(gate.url, listen, **talk.callbacks) as client:
        if listen:
            await client.listening()
        for kind, answered in ANSWERED.items():
            task = await client.create("question", kinds=[kind])
            assert text(await client.collect(task.taskId)) == answered
            assert (await client.tasks.get_task(task.taskId)).status == "completed"
            tasks.append(task.taskId)
    related = [{RELATED_TASK: {"taskId": task_id}} for task_id in tasks]
    assert [params["_meta"] for params in talk.asked] == related


@ASKING
@STREAMS
async def test_several_questions_at_once_are_each_answered(gate, listen):
    talk = Talk()
    kinds = ["form", "sampling", "roots", "url", "form"]
    async with connect(gate.url, listen, **talk.callbacks) as client:
        task = await client.create("question", kinds=kinds)
        result = text(await client.collect(task.taskId))
        assert result == ", ".join(ANSWERED[kind] for kind in kinds)
    assert len(talk.asked) == len(kinds)


@ASKING
async def test_task_waits_for_input_until_its_result_is_asked_for(gate):
    talk = Talk()
    async with connect(gate.url, listen=False, **talk.callbacks) as client:
        task = await client.create("question", kinds=["form"])
        with anyio.fail_after(10):
            await wait_for_input(client, task.taskId)
        assert talk.asked == []
        assert text(await client.collect(task.taskId)) == ANSWERED["form"]


# A question by the SDK's usual method goes out on the server's GET stream, where there is one.
@pytest.mark.parametrize("gate", ["sse", "stdio", "replaced"], indirect=True)
@STREAMS
async def test_servers_usual_way_to_ask_for_sampling_is_answered(gate, listen):
    talk = Talk()
    sample = gate.tools.sample
    async with connect(gate.url, listen, **talk.callbacks) as client:
        if listen:
            await client.listening()
        task = await client.create(sample.name, **sample.arguments)
        assert sample.text in text(await client.collect(task.taskId))
    assert len([params for params in talk.asked if "messages" in params]) == 1


@pytest.mark.parametrize("gate", ["sse", "stdio", "replaced"], indirect=True)
@STREAMS
async def test_servers_usual_way_to_elicit_is_answered(gate, listen):
    talk = Talk()
    ask = gate.tools.ask
    async with connect(gate.url, listen, **talk.callbacks) as client:
        if listen:
            await client.listening()
        task = await client.create(ask.name, **ask.arguments)
        result = await client.collect(task.taskId)
        assert ask.text in "".join(content.text for content in result.content)
    assert len([params for params in talk.asked if "message" in params]) == 1


@ASKING
async def test_question_that_the_client_cannot_answer_is_refused_at_once(gate):
    async with connect(gate.url, listen=False) as client:
        task = await client.create("question", kinds=["form", "url", "sampling", "roots"])
        # The task does not wait for input that cannot come.
        seen = {state.status for state in await client.poll(task.taskId)}
        assert seen <= {"working", "completed"}
        refused = ", ".join([f"error {METHOD_NOT_FOUND}"] * 4)
        assert text(await client.collect(task.taskId)) == refused


@ASKING
async def test_every_state_comes_from_the_question_to_the_end(gate):
    talk = Talk()
    async with connect(gate.url, **talk.callbacks) as client:
        await client.listening()
        task = await client.create("question", kinds=["form"])
        await talk.until(lambda: talk.states(task.taskId)[-1:] == ["completed"])
        last = await client.tasks.get_task(task.taskId)
        assert dump(talk.statuses(task.taskId)[-1]) == dump(last)
    states = talk.states(task.taskId)
    # The state at the creation may come a second time.
    if states[0] == "working":
        states.pop(0)
    assert states == ["input_required", "working", "completed"]
