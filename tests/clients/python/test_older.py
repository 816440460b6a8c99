"""In a session of an older revision there are no tasks, and nothing is rewritten."""

import json
from typing import Any

import httpx
import pytest


class RawClient:
    """JSON-RPC over Streamable HTTP by hand: the SDK's client only asks for the newest revision."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url
        self._headers = {"accept": "application/json, text/event-stream"}

    async def _post(self, message: dict[str, Any]) -> httpx.Response:
        message = {"jsonrpc": "2.0"} | message
        return await self._http.post(self._url, json=message, headers=self._headers)

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        response = await self._post({"id": "r-1", "method": method, "params": params})
        assert response.status_code == 200
        if session := response.headers.get("mcp-session-id"):
            self._headers["mcp-session-id"] = session
        body = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            (body,) = (line[6:] for line in body.splitlines() if line.startswith("data: {"))
        return json.loads(body)

    async def hello(self, revision: str) -> dict[str, Any]:
        answer = await self.request(
            "initialize",
            {
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": {"name": "older", "version": "1"},
            },
        )
        self._headers["mcp-protocol-version"] = revision
        accepted = await self._post({"method": "notifications/initialized"})
        assert accepted.status_code == 202
        return answer


@pytest.mark.parametrize("gate", ["json", "sse", "stateless"], indirect=True)
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_older_session_sees_the_server_as_it_is(gate, revision):
    async with httpx.AsyncClient() as http:
        direct = RawClient(http, gate.server)
        client = RawClient(http, gate.url)

        hello = await client.hello(revision)
        assert hello == await direct.hello(revision)
        assert hello["result"]["protocolVersion"] == revision
        assert "tasks" not in hello["result"]["capabilities"]

        for method, params in (
            ("tools/list", {}),
            ("tools/call", {"name": "echo", "arguments": {"text": "hi"}, "task": {"ttl": 1}}),
            ("tasks/list", {}),
            ("tasks/get", {"taskId": "no-such-task"}),
        ):
            answer = await client.request(method, params)
            assert answer == await direct.request(method, params)
            if method == "tools/call":
                assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]
            elif method.startswith("tasks/"):
                assert answer["error"]["code"] < 0
