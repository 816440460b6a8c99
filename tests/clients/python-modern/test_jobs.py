"""FastMCP 4 without its tasks and the Python SDK 2, of either generation: a call that takes long becomes a job."""

from contextlib import asynccontextmanager

import anyio
import fastmcp_tasks  # noqa: F401 (from then on FastMCP's client declares the extension)
import mcp
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp import StdioServerParameters

import hosts
import kit

TOOLS = ["report", "count", "wait_for_job", "cancel_job", "list_jobs"]


class PlainClient(Client):
    """FastMCP's client as it is where fastmcp-tasks is not installed."""

    _auto_internal_extensions = False


@asynccontextmanager
async def fastmcp(target):
    if isinstance(target, list):
        target = StdioTransport(target[0], target[1:], keep_alive=False)
    async with PlainClient(target) as client:
        assert [tool.name for tool in await client.list_tools()] == TOOLS

        async def call(name, arguments):
            return await client.call_tool(name, arguments, timeout=hosts.PATIENCE)

        yield call


def sdk(mode):
    @asynccontextmanager
    async def connected(target):
        if isinstance(target, list):
            target = StdioServerParameters(command=target[0], args=target[1:])
        async with mcp.Client(target, mode=mode, read_timeout_seconds=kit.PATIENCE) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS

            async def call(name, arguments):
                with anyio.fail_after(hosts.PATIENCE):
                    return await client.call_tool(name, arguments)

            yield call

    connected.__name__ = f"sdk-{mode}"
    return connected


@pytest.mark.parametrize("way", [hosts.over_http, hosts.over_stdio])
@pytest.mark.parametrize("host", [fastmcp, sdk("2026-07-28"), sdk("legacy")])
async def test_host_without_tasks_gets_a_job_and_its_result(host, way):
    with way() as target:
        async with host(target) as call:
            result = await hosts.gets_a_job(call)
    assert result.structured_content == {"ms": hosts.SLOW_SECONDS * 1000}


HEARTBEATS = '[upstream.tools.report]\nheartbeat = "15s"\n'
TASKS = hosts.SETTINGS + 'task_after = "100ms"\n'


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("settings, has_schema", [(HEARTBEATS, True), (hosts.SETTINGS, False)])
async def test_sdk_takes_structured_results_plainly(mode, settings, has_schema):
    with hosts.over_http(settings) as url:
        async with mcp.Client(url, mode=mode, read_timeout_seconds=kit.PATIENCE) as client:
            report = (await client.list_tools()).tools[0]
            assert (report.output_schema is not None) == has_schema
            result = await client.call_tool("report", {"ms": 1})
            assert result.structured_content == {"ms": 1}


@pytest.mark.parametrize(
    "host, settings, has_schema",
    [(PlainClient, HEARTBEATS, True), (PlainClient, hosts.SETTINGS, False), (Client, TASKS, True)],
)
async def test_fastmcp_takes_structured_results_plainly_and_as_a_task(host, settings, has_schema):
    with hosts.over_http(settings) as url:
        async with host(url) as client:
            report = (await client.list_tools())[0]
            assert (report.output_schema is not None) == has_schema
            # The second of them is a task where the client has tasks, and plain elsewhere.
            for ms in [1, 400]:
                result = await client.call_tool("report", {"ms": ms})
                assert result.structured_content == {"ms": ms}
