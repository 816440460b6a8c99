"""Structured results pass the schema check of hosts: plainly, from a tool that may be answered with a job, and as a task."""

import pytest
from fastmcp import Client

import hosts
from client import connect

HEARTBEATS = '[upstream.tools.report]\nheartbeat = "15s"\n'
TOOLS = pytest.mark.parametrize("settings, has_schema", [(HEARTBEATS, True), (hosts.SETTINGS, False)])


@TOOLS
async def test_sdk_takes_structured_results(settings, has_schema):
    with hosts.over_http(settings) as url:
        async with connect(url) as client:
            report = (await client.session.list_tools()).tools[0]
            assert (report.outputSchema is not None) == has_schema
            assert (await client.call("report", ms=1)).structuredContent == {"ms": 1}
            task = await client.create("report", ms=700)
            assert (await client.collect(task.taskId)).structuredContent == {"ms": 700}


@TOOLS
async def test_fastmcp_takes_structured_results(settings, has_schema):
    with hosts.over_http(settings) as url:
        async with Client(url) as client:
            report = (await client.list_tools())[0]
            assert (report.outputSchema is not None) == has_schema
            assert (await client.call_tool("report", {"ms": 1})).structured_content == {"ms": 1}
            task = await client.call_tool("report", {"ms": 700}, task=True)
            assert (await task).structured_content == {"ms": 700}
