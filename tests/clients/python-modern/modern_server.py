"""A server of the Python SDK 2.x, which speaks 2026-07-28 and knows no tasks: over HTTP, or over stdio with --stdio."""

import socket
import sys
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("python-sdk")


class Confirmation(BaseModel):
    confirm: bool


def ask() -> Elicit[Confirmation]:
    return Elicit("Delete it?", Confirmation)


@server.tool()
def greet(name: str) -> str:
    """Greets."""
    return f"Hello, {name}!"


@server.tool()
async def slow(seconds: float) -> str:
    """Takes its time."""
    await anyio.sleep(seconds)
    return "slept"


@server.tool()
def delete(answer: Annotated[Confirmation, Resolve(ask)]) -> str:
    """Asks before it deletes."""
    return "deleted" if answer.confirm else "kept"


if "--stdio" in sys.argv:
    server.run("stdio")
else:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(f"listening on http://127.0.0.1:{port}/mcp", flush=True)
    server.run("streamable-http", host="127.0.0.1", port=port)
