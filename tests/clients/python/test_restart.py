"""taskgate is killed and started again, and the SDK's client goes on with the tasks that it has."""

import json

import kit
from client import connect, text


async def test_client_gets_the_results_of_tasks_that_had_ended_and_waited(tmp_path):
    with kit.plain_server() as (_, server):
        config = f"""
[tasks]
poll_interval = "50ms"
[[upstream]]
url = {json.dumps(server)}
[upstream.tools.slow]
max_running = 1
"""
        gate = kit.LastingTaskgate(config, tmp_path)
        try:
            async with connect(gate.url) as client:
                done = await client.create("echo", text="before")
                await client.poll(done.taskId)
                running = await client.create("slow", ms=20_000)
                waiting = await client.create("slow", ms=100)
                await client.reached("slow", 1)

                gate.restart()
                assert text(await client.collect(done.taskId)) == "before"
                # The SDK's server keeps no events, and without them the end of this one is unknown.
                (failed,) = await client.poll(running.taskId)
                assert failed.status == "failed"
                assert "may or may not have had its effect" in failed.statusMessage
                assert (await client.poll(waiting.taskId))[-1].status == "completed"
                assert text(await client.collect(waiting.taskId)) == "took 100 ms"
                assert await client.count("slow") == 2
                assert text(await client.call("echo", text="plain")) == "plain"
        finally:
            gate.stop()
