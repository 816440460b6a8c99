"""A client that answers every kind of question, and keeps what it hears."""

from collections.abc import Callable
from typing import Any

import anyio
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotification,
    ProgressNotification,
    Root,
    ServerNotification,
    TaskStatusNotification,
    TextContent,
)

from client import dump
from kit import PATIENCE

RELATED_TASK = "io.modelcontextprotocol/related-task"

ANSWERED = {
    "form": "accept: Ada",
    "url": "accept",
    "sampling": "small-model: you said: two plus two",
    "roots": "file:///home/ada",
}
"""What the tool `question` gives when a `Talk` has answered."""


class Talk:
    """Answers what a server asks, and keeps it with all that it tells."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.heard: list[ServerNotification] = []
        self.faults: list[Exception] = []
        self._news = anyio.Event()

    @property
    def callbacks(self) -> dict[str, Any]:
        """For `connect`."""
        return {
            "elicitation_callback": self._elicit,
            "sampling_callback": self._sample,
            "list_roots_callback": self._roots,
            "message_handler": self._hear,
        }

    async def _elicit(self, context, params) -> ElicitResult:
        self.asked.append(dump(params))
        content = {"name": "Ada"} if params.mode == "form" else None
        return ElicitResult(action="accept", content=content)

    async def _sample(self, context, params) -> CreateMessageResult:
        self.asked.append(dump(params))
        said = f"you said: {params.messages[0].content.text}"
        return CreateMessageResult(
            role="assistant", model="small-model", content=TextContent(type="text", text=said)
        )

    async def _roots(self, context) -> ListRootsResult:
        self.asked.append({"_meta": dump(context.meta)})
        return ListRootsResult(roots=[Root(uri=ANSWERED["roots"])])

    async def _hear(self, message) -> None:
        if isinstance(message, Exception):
            self.faults.append(message)
        elif isinstance(message, ServerNotification):
            self.heard.append(message)
            self._news.set()
            self._news = anyio.Event()

    def _params(self, kind: type) -> list[Any]:
        return [message.root.params for message in self.heard if isinstance(message.root, kind)]

    @property
    def progress(self) -> list[dict[str, Any]]:
        return [dump(params) for params in self._params(ProgressNotification)]

    @property
    def logs(self) -> list[dict[str, Any]]:
        return [dump(params) for params in self._params(LoggingMessageNotification)]

    def statuses(self, task_id: str) -> list[Any]:
        """Returns what came about a task."""
        return [task for task in self._params(TaskStatusNotification) if task.taskId == task_id]

    def states(self, task_id: str) -> list[str]:
        """Returns the states that came of a task, each once in a row."""
        states = [task.status for task in self.statuses(task_id)]
        return [state for state, before in zip(states, [None, *states]) if state != before]

    async def until(self, found: Callable[[], bool]) -> None:
        """Waits for the notification that makes it true."""
        with anyio.fail_after(PATIENCE):
            while not found():
                await self._news.wait()
