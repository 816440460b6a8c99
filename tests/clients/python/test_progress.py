"""What the SDK's client hears of a running task: progress after the creation, and log messages.

The SDK forgets the callback of a request with its answer, here the one that creates the task. What
comes later under the request's token reaches the message handler, as every notification does.
"""

import anyio
import pytest

from client import connect, text
from talking import RELATED_TASK, Talk

TALKING = pytest.mark.parametrize("gate", ["sse", "stdio"], indirect=True)
STEPS = 3


@TALKING
@pytest.mark.parametrize("listen", [False, True], ids=["tasks/result", "GET stream"])
async def test_progress_arrives_under_the_clients_token_until_the_end(gate, listen):
    talk = Talk()
    key = f"progress {gate.kind} {listen}"
    async with connect(gate.url, listen, **talk.callbacks) as client:
        if listen:
            await client.listening()
        task = await client.create("paced", key=key, steps=STEPS, progress_token="my token")
        results = []

        async def collect():
            results.append(text(await client.collect(task.taskId)))

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(collect)
            await client.collecting()
            for step in range(1, STEPS + 1):
                await client.call("advance", key=key)
                await talk.until(lambda: len(talk.progress) == step)
                state = await client.tasks.get_task(task.taskId)
                assert state.statusMessage == f"{step} of {STEPS}: step {step}"
            await client.call("advance", key=key)
        assert results == ["started 1 times"]
        await client.session.send_ping()
    assert talk.progress == [
        {
            "_meta": {RELATED_TASK: {"taskId": task.taskId}},
            "progressToken": "my token",
            "progress": step,
            "total": STEPS,
            "message": f"step {step}",
        }
        for step in range(1, STEPS + 1)
    ]


@TALKING
async def test_log_messages_of_a_task_name_the_task(gate):
    talk = Talk()
    key = f"log {gate.kind}"
    async with connect(gate.url, **talk.callbacks) as client:
        await client.listening()
        task = await client.create("paced", key=key, steps=0)
        await talk.until(lambda: talk.logs != [])
        await client.call("advance", key=key)
        await client.collect(task.taskId)
    (log,) = talk.logs
    assert log["data"] == key
    assert log["_meta"] == {RELATED_TASK: {"taskId": task.taskId}}
