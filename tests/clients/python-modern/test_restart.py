"""taskgate is killed and started again, and the handles of FastMCP 4 go on."""

import json

from conftest import LEGACY_SERVER, TOOLS
from fastmcp import Client
from fastmcp_tasks import call_tool_task

import kit


async def test_handle_of_a_task_gives_its_result_after_a_restart(tmp_path):
    server = kit.Process([kit.node(), LEGACY_SERVER])
    config = f"""
[tasks]
poll_interval = "50ms"
task_after = "0s"
[[upstream]]
url = {json.dumps(server.wait_for(r"listening on (http://[^ ]+)"))}
{TOOLS}
[upstream.tools.slow_compute]
max_running = 1
"""
    gate = kit.LastingTaskgate(config, tmp_path)
    try:
        async with Client(gate.url, timeout=kit.PATIENCE) as client:
            done = await call_tool_task(client, "greet", {"name": "Ada"})
            while (await done.status()).status != "completed":
                pass
            arguments = {"seconds": 20, "label": "interrupted"}
            running = await call_tool_task(client, "slow_compute", arguments)
            waiting = await call_tool_task(client, "slow_compute", {"seconds": 1, "label": "waits"})

            gate.restart()
            (content,) = (await done.result()).content
            assert content.text == "Hello, Ada!"
            failed = await running.status()
            assert failed.status == "failed"
            assert "may or may not have had its effect" in failed.status_message
            (content,) = (await waiting.result()).content
            assert content.text == "computed waits for 1 s"
    finally:
        gate.stop()
        server.stop()
