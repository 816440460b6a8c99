"""The servers that taskgate stands in front of, and what their tools are called."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import kit


@dataclass(frozen=True)
class Call:
    """One call of a tool, and the text it ends with."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Tools:
    """One tool for each thing that a test wants to see."""

    quick: Call
    slow: Call
    progress: list[tuple[float, float | None, str | None]]
    fail: Call
    hang: Call
    ask: Call
    sample: Call


PLAIN = Tools(
    quick=Call("echo", {"text": "grüße"}, "grüße"),
    slow=Call("slow", {"ms": 400}, "took 400 ms"),
    progress=[(step, 4, f"step {step}") for step in (1, 2, 3, 4)],
    fail=Call("fail", {}, "Error executing tool fail: the disk is full"),
    hang=Call("hang"),
    ask=Call("ask", {}, "accept: Ada"),
    sample=Call("sample", {"prompt": "two plus two"}, "small-model: you said: two plus two"),
)

LONG = "trigger-long-running-operation"

EVERYTHING = Tools(
    quick=Call("echo", {"message": "grüße"}, "Echo: grüße"),
    slow=Call(
        LONG,
        {"duration": 0.4, "steps": 2},
        "Long running operation completed. Duration: 0.4 seconds, Steps: 2.",
    ),
    progress=[(1, 2, None), (2, 2, None)],
    # Its own tasks are replaced, so the call comes plainly, which this tool refuses.
    fail=Call(
        "simulate-research-query",
        {"topic": "bees"},
        "MCP error -32601: Tool simulate-research-query requires task augmentation"
        " (taskSupport: 'required')",
    ),
    hang=Call(LONG, {"duration": 600, "steps": 1}),
    ask=Call("trigger-elicitation-request", {}, "- Name: Ada"),
    sample=Call(
        "trigger-sampling-request",
        {"prompt": "two plus two"},
        "you said: Resource trigger-sampling-request context: two plus two",
    ),
)


@dataclass(frozen=True)
class Gate:
    """A taskgate and the server behind it."""

    url: str
    server: kit.Target
    tools: Tools
    kind: str


@contextmanager
def gate(kind: str) -> Iterator[Gate]:
    if kind == "replaced":
        server, tools = kit.everything_command(), EVERYTHING
        with kit.taskgate_with(server, upstream='native = "replace"') as url:
            yield Gate(url, server, tools, kind)
    elif kind == "stdio":
        server = kit.plain_command("--stdio")
        with kit.taskgate_with(server) as url:
            yield Gate(url, server, PLAIN, kind)
    else:
        flags = {"json": ["--json"], "sse": [], "stateless": ["--stateless"], "old": ["--old"]}[kind]
        with kit.plain_server(*flags) as (_, server), kit.taskgate_with(server) as url:
            yield Gate(url, server, PLAIN, kind)
