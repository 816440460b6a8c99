"""FastMCP 4 without its tasks and the Python SDK 2, of either generation: a call that takes long becomes a job."""

from contextlib import asynccontextmanager

import anyio
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
