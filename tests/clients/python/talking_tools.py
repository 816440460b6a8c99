"""Tools of plain_server.py that talk while they run: they ask, report progress and log."""

import anyio
from mcp import McpError
from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    ServerRequest,
    TextContent,
)

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PROMPT = SamplingMessage(role="user", content=TextContent(type="text", text="two plus two"))

# What each kind of question sends, its answer's type, and which part of the answer the tool returns.
QUESTIONS = {
    "form": (
        ElicitRequest(
            params=ElicitRequestFormParams(message="Who is there?", requestedSchema=NAME)
        ),
        ElicitResult,
        lambda answer: f"{answer.action}: {(answer.content or {}).get('name')}",
    ),
    "url": (
        ElicitRequest(
            params=ElicitRequestURLParams(
                message="sign in", url="https://example.com/sign-in", elicitationId="e2"
            )
        ),
        ElicitResult,
        lambda answer: answer.action,
    ),
    "sampling": (
        CreateMessageRequest(
            params=CreateMessageRequestParams(messages=[PROMPT], maxTokens=10)
        ),
        CreateMessageResult,
        lambda answer: f"{answer.model}: {answer.content.text}",
    ),
    "roots": (
        ListRootsRequest(),
        ListRootsResult,
        lambda answer: " ".join(str(root.uri) for root in answer.roots),
    ),
}


def add_talking_tools(server: FastMCP, counts) -> None:
    """Adds them; `counts` is what lets `paced` go on."""

    @server.tool()
    async def question(kinds: list[str], ctx: Context) -> str:
        """Asks several questions at once, each as a part of this call."""
        answers = [""] * len(kinds)

        async def ask(at: int, kind: str) -> None:
            request, result, read = QUESTIONS[kind]
            # Not every method of the SDK says to which call a question belongs.
            related = ServerMessageMetadata(related_request_id=ctx.request_id)
            try:
                answer = await ctx.session.send_request(
                    ServerRequest(request), result, metadata=related
                )
                answers[at] = read(answer)
            except McpError as error:
                answers[at] = f"error {error.error.code}"

        async with anyio.create_task_group() as questions:
            for at, kind in enumerate(kinds):
                questions.start_soon(ask, at, kind)
        return ", ".join(answers)

    @server.tool()
    async def paced(key: str, steps: int, ctx: Context) -> str:
        """Logs, then reports each step when `advance` allows it, and ends at one more."""
        counts.add(f"paced {key}")
        await ctx.info(key)
        for step in range(1, steps + 1):
            await counts.reach(f"go {key}", step)
            await ctx.report_progress(step, steps, f"step {step}")
        await counts.reach(f"go {key}", steps + 1)
        return f"started {counts.values[f'paced {key}']} times"

    @server.tool()
    async def advance(key: str) -> str:
        """Lets the calls of `paced` with this key go on by one step."""
        counts.add(f"go {key}")
        return "ok"
