"""The SDK's client, with helpers for the tests."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.experimental import ExperimentalClientFeatures
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, InitializeResult, TextContent

from kit import PATIENCE, Target


@dataclass
class Client:
    """An initialized session of the SDK's client."""

    session: ClientSession
    tasks: ExperimentalClientFeatures
    hello: InitializeResult
    session_id: Callable[[], str] | None
    """The session's id, over Streamable HTTP."""
    _listening: anyio.Event
    _collecting: anyio.Event

    async def listening(self) -> None:
        """Waits until the GET stream is open: what a server sends on it before may be lost."""
        with anyio.fail_after(PATIENCE):
            await self._listening.wait()

    async def collecting(self) -> None:
        """Waits until a stream that answers `tasks/result` is open."""
        with anyio.fail_after(PATIENCE):
            await self._collecting.wait()

    async def call(self, name: str, **arguments: Any) -> CallToolResult:
        return await self.session.call_tool(name, arguments)

    async def create(
        self, name: str, ttl: int = 60_000, progress_token: str | None = None, **arguments: Any
    ):
        """Calls a tool as a task."""
        meta = None if progress_token is None else {"progressToken": progress_token}
        return (await self.tasks.call_tool_as_task(name, arguments, ttl=ttl, meta=meta)).task

    async def poll(self, task_id: str) -> list:
        """Returns every state seen until the task has ended."""
        with anyio.fail_after(PATIENCE):
            return [state async for state in self.tasks.poll_task(task_id)]

    async def collect(self, task_id: str) -> CallToolResult:
        return await self.tasks.get_task_result(task_id, CallToolResult)

    async def list_all(self) -> list:
        """Returns the tasks of every page."""
        page = await self.tasks.list_tasks()
        tasks = page.tasks
        while page.nextCursor is not None:
            page = await self.tasks.list_tasks(page.nextCursor)
            tasks += page.tasks
        return tasks

    async def count(self, event: str) -> int:
        """Returns how often plain_server.py counted the event."""
        return (await self.call("stats")).structuredContent.get(event, 0)

    async def reached(self, event: str, count: int) -> None:
        """Waits until plain_server.py has counted the event so often."""
        assert text(await self.call("reached", event=event, count=count)) == str(count)


class NoGetStream(httpx.AsyncHTTPTransport):
    """Refuses the GET stream, as a server without one does, but lets streams be resumed."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            return httpx.Response(405)
        return await super().handle_async_request(request)


@asynccontextmanager
async def connect(
    target: Target,
    listen: bool = True,
    auth: httpx.Auth | None = None,
    headers: dict[str, str] | None = None,
    **callbacks: Any,
) -> AsyncIterator[Client]:
    """A client of a taskgate or, for what a test expects, of a server itself.

    Over HTTP it has a GET stream only if it listens.
    """
    listening = anyio.Event()
    collecting = anyio.Event()

    async def note(response: httpx.Response) -> None:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            return
        if response.request.method == "GET":
            listening.set()
        if b'"tasks/result"' in response.request.content:
            collecting.set()

    async with AsyncExitStack() as stack:
        if isinstance(target, str) and target.endswith("/sse"):
            transport = sse_client(target)
        elif isinstance(target, str):
            timeout = httpx.Timeout(PATIENCE)
            way = None if listen else NoGetStream()
            hooks = {"response": [note]}
            http = httpx.AsyncClient(
                auth=auth, headers=headers, timeout=timeout, event_hooks=hooks, transport=way
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(target, http_client=http)
        else:
            transport = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
        streams = await stack.enter_async_context(transport)
        # Without a time limit the SDK would wait for ever for a missing answer.
        session = ClientSession(streams[0], streams[1], timedelta(seconds=PATIENCE), **callbacks)
        await stack.enter_async_context(session)
        hello = await session.initialize()
        session_id = streams[2] if len(streams) > 2 else None
        yield Client(session, session.experimental, hello, session_id, listening, collecting)


@contextmanager
def ended_by(status: int) -> Iterator[None]:
    """Expects the connection to end with this HTTP status, because the SDK ends it at every HTTP error."""
    with pytest.RaisesGroup(httpx.HTTPStatusError, flatten_subgroups=True) as raised:
        yield
    assert [error.response.status_code for error in raised.value.exceptions] == [status]


def text(result: CallToolResult) -> str:
    """Returns the text of a result that is one text."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def dump(model: Any) -> dict[str, Any]:
    """Returns what came over the wire, unknown members included."""
    return model.model_dump(by_alias=True, mode="json", exclude_unset=True)
