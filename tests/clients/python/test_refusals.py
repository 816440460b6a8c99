"""What is refused with an HTTP error or a JSON-RPC error, and what the client makes of it."""

import httpx
import pytest
from mcp import McpError

import kit
from client import connect, text

NAMED = """
[auth]
mode = "header"
header = "x-user"
trusted_peers = ["127.0.0.1"]
"""
ALICE = {"x-user": "alice"}


@pytest.fixture(scope="module")
def server():
    with kit.plain_server() as (_, url):
        yield url


async def test_rate_that_is_used_up_ends_the_connection_but_not_the_tasks(server):
    """The SDK takes every HTTP error for the end of its transport, 429 as well."""
    sections = f'{NAMED}[rate]\ncreations = "1/h"'
    with kit.taskgate_with(server, sections=sections) as url:
        with pytest.RaisesGroup(httpx.HTTPStatusError, flatten_subgroups=True) as raised:
            async with connect(url, headers=ALICE) as client:
                task = await client.create("echo", text="kept")
                await client.create("echo", text="too many")
        (error,) = raised.value.exceptions
        assert error.response.status_code == 429

        async with connect(url, headers=ALICE) as again:
            assert text(await again.collect(task.taskId)) == "kept"


async def test_session_for_which_there_is_no_room_is_refused_and_another_opens_later(server):
    with kit.taskgate_with(server, sections="[server]\nmax_sessions = 1") as url:
        async with connect(url):
            refusal = pytest.RaisesExc(McpError, match="server.max_sessions = 1")
            with pytest.RaisesGroup(refusal, flatten_subgroups=True):
                async with connect(url):
                    pass
        async with connect(url) as later:
            assert text(await later.call("echo", text="in")) == "in"
