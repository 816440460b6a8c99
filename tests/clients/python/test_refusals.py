"""Refusals with an HTTP error or a JSON-RPC error, and how the client handles them."""

import fastmcp
import httpx
import pytest
from fastmcp.client.transports import StreamableHttpTransport
from mcp import McpError

import kit
from client import connect, ended_by, text

NAMED = """
[auth]
mode = "header"
header = "x-user"
trusted_peers = ["127.0.0.1"]
"""
ONE_TASK = f'{NAMED}[rate]\ncreations = "1/h"'
ALICE = {"x-user": "alice"}


@pytest.fixture(scope="module")
def server():
    with kit.plain_server() as (_, url):
        yield url


async def test_client_over_the_rate_loses_its_connection_but_not_its_tasks(server):
    with kit.taskgate_with(server, sections=ONE_TASK) as url:
        with ended_by(429):
            async with connect(url, headers=ALICE) as client:
                task = await client.create("echo", text="kept")
                await client.create("echo", text="too many")

        async with connect(url, headers=ALICE) as again:
            assert text(await again.collect(task.taskId)) == "kept"


async def test_fastmcp_over_the_rate_loses_its_connection_too(server):
    with kit.taskgate_with(server, sections=ONE_TASK) as url:
        transport = StreamableHttpTransport(url, headers=ALICE)
        with pytest.raises(httpx.HTTPStatusError, match="429 Too Many Requests"):
            async with fastmcp.Client(transport) as client:
                task = await client.call_tool("echo", {"text": "kept"}, task=True)
                await client.call_tool("echo", {"text": "too many"}, task=True)

        async with connect(url, headers=ALICE) as again:
            assert text(await again.collect(task.task_id)) == "kept"


async def test_client_of_an_ended_session_learns_that_it_ended(server):
    with kit.taskgate_with(server) as url:
        async with connect(url) as client, httpx.AsyncClient() as http:
            await http.delete(url, headers={"mcp-session-id": client.session_id()})
            with pytest.raises(McpError, match="Session terminated"):
                await client.call("echo", text="anyone?")


async def test_session_beyond_the_limit_is_refused_and_another_opens_later(server):
    with kit.taskgate_with(server, sections="[server]\nmax_sessions = 1") as url:
        async with connect(url) as client:
            # Without a task, or its GET stream, the session would give way.
            await client.create("echo", text="kept")
            refusal = pytest.RaisesExc(McpError, match="server.max_sessions = 1")
            with pytest.RaisesGroup(refusal, flatten_subgroups=True):
                async with connect(url):
                    pass
        async with connect(url) as later:
            assert text(await later.call("echo", text="in")) == "in"
