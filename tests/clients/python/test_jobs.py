"""The Python SDK and FastMCP 3 as hosts that know no tasks: a call that takes long becomes a job."""

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import hosts
from client import connect

TOOLS = ["report", "count", "wait_for_job", "cancel_job", "list_jobs"]


@asynccontextmanager
async def sdk(target):
    async with connect(target) as client:
        listed = await client.session.list_tools()
        assert [tool.name for tool in listed.tools] == TOOLS
        # The SDK checks structured results against it.
        assert listed.tools[0].outputSchema is None

        async def call(name, arguments):
            patience = timedelta(seconds=hosts.PATIENCE)
            return await client.session.call_tool(name, arguments, read_timeout_seconds=patience)

        yield call


@asynccontextmanager
async def fastmcp(target):
    if isinstance(target, list):
        target = StdioTransport(target[0], target[1:], keep_alive=False)
    async with Client(target) as client:
        assert [tool.name for tool in await client.list_tools()] == TOOLS

        async def call(name, arguments):
            return await client.call_tool(name, arguments, timeout=hosts.PATIENCE)

        yield call


@pytest.mark.parametrize("way", [hosts.over_http, hosts.over_stdio])
@pytest.mark.parametrize("host", [sdk, fastmcp])
async def test_host_without_tasks_gets_a_job_and_its_result(host, way):
    with way() as target:
        async with host(target) as call:
            result = await hosts.gets_a_job(call)
    structured = getattr(result, "structuredContent", None) or result.structured_content
    assert structured == {"ms": hosts.SLOW_SECONDS * 1000}
