"""A server made with the official SDK's FastMCP that knows nothing of tasks.

Over HTTP on a free port, whose URL is the one line on stdout, or over stdio. HTTP is
Streamable HTTP, or the HTTP+SSE transport of 2024-11-05. Every call is counted, so that a test can ask what the server really saw.
"""

import argparse
import socket
from collections import Counter

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams, SamplingMessage, TextContent
from pydantic import BaseModel

from talking_tools import add_talking_tools

SIGN_IN_URL = "https://example.com/sign-in"


class Name(BaseModel):
    """What `ask` wants to know."""

    name: str


class Counts:
    """How often each event happened, for every session of this process."""

    def __init__(self) -> None:
        self.values: Counter[str] = Counter()
        self.changed = anyio.Event()

    def add(self, event: str) -> None:
        self.values[event] += 1
        self.changed.set()
        self.changed = anyio.Event()

    async def reach(self, event: str, count: int) -> None:
        while self.values[event] < count:
            await self.changed.wait()


def add_tools(server: FastMCP, counts: Counts) -> None:
    @server.tool()
    async def echo(text: str) -> str:
        """Returns the text."""
        counts.add("echo")
        return text

    @server.tool()
    async def slow(ms: int, ctx: Context) -> str:
        """Takes its time, in four steps with progress."""
        counts.add("slow")
        for step in range(1, 5):
            await anyio.sleep(ms / 4000)
            await ctx.report_progress(step, 4, f"step {step}")
        return f"took {ms} ms"

    @server.tool()
    async def fail() -> str:
        """Ends with an `isError` result."""
        counts.add("fail")
        raise ToolError("the disk is full")

    @server.tool()
    async def refuse() -> str:
        """Ends with a JSON-RPC error that carries data."""
        counts.add("refuse")
        raise UrlElicitationRequiredError(
            [ElicitRequestURLParams(message="sign in", url=SIGN_IN_URL, elicitationId="e1")],
            message="sign in first",
        )

    @server.tool()
    async def hang() -> str:
        """Never ends, and counts its cancellations."""
        counts.add("hang")
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            counts.add("hang cancelled")
            raise
        return "unreachable"

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Asks the user for a name."""
        counts.add("ask")
        answer = await ctx.elicit("Who is there?", Name)
        name = answer.data.name if answer.action == "accept" else "nobody"
        return f"{answer.action}: {name}"

    @server.tool()
    async def sample(prompt: str, ctx: Context) -> str:
        """Asks the client's model. The SDK sends this on the GET stream where there is one."""
        counts.add("sample")
        question = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        answer = await ctx.session.create_message([question], max_tokens=10)
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    async def stats() -> dict[str, int]:
        """How often each tool ran, and `hang` was cancelled."""
        return dict(counts.values)

    @server.tool()
    async def reached(event: str, count: int) -> int:
        """Waits until the event was counted so often."""
        await counts.reach(event, count)
        return counts.values[event]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="JSON answers instead of SSE")
    parser.add_argument("--stateless", action="store_true", help="no sessions")
    parser.add_argument("--old", action="store_true", help="the HTTP+SSE transport of 2024-11-05")
    parser.add_argument("--stdio", action="store_true", help="stdio instead of HTTP")
    args = parser.parse_args()

    server = FastMCP("plain", json_response=args.json, stateless_http=args.stateless)
    # The event needs a running loop only when a call waits for it, so it may be made here.
    counts = Counts()
    add_tools(server, counts)
    add_talking_tools(server, counts)
    if args.stdio:
        server.run("stdio")
        return
    # It listens before it prints the URL, so that readers of the URL can connect at once.
    listener = socket.create_server(("127.0.0.1", 0))
    path, app = ("sse", server.sse_app()) if args.old else ("mcp", server.streamable_http_app())
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/{path}", flush=True)
    config = uvicorn.Config(app, log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
