"""Clients with tokens: the SDK's OAuth client and FastMCP's bearer token, which taskgate asks the issuer about."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import anyio
import fastmcp
import pytest
from mcp import McpError
from mcp.types import INVALID_PARAMS

import issuer
import kit
from client import connect, ended_by, text

ONCE = "started 1 times"


@dataclass
class House:
    """A taskgate that asks an issuer."""

    url: str
    issuer: issuer.Issuer

    def session(self, subject: str):
        """A client of this subject with a login of its own."""
        return connect(self.url, auth=self.issuer.login(self.url, subject))


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Iterator[House]:
    secret = tmp_path_factory.mktemp("secret") / "secret"
    secret.write_text(issuer.SECRET)
    with (
        issuer.issuer() as running,
        kit.plain_server() as (_, server),
        kit.taskgate_with(server, sections=running.auth_section(str(secret))) as url,
    ):
        yield House(url, running)


async def test_oauth_client_finds_the_issuer_and_asks_it_for_a_token_for_this_resource(house):
    house.issuer.resources.clear()
    async with house.session("alice") as client:
        await client.list_all()
    assert house.issuer.resources == [house.url]


async def test_result_is_collected_with_a_new_token_after_the_first_was_revoked(house):
    async with house.session("alice") as client:
        task = await client.create("paced", key="revoked", steps=0)
        house.issuer.revoke()
        await client.call("advance", key="revoked")
        assert text(await client.collect(task.taskId)) == ONCE


async def test_collecting_goes_on_with_a_new_token_when_the_first_expires_meanwhile(house):
    results = []
    house.issuer.next_lifetime = 1
    async with house.session("alice") as client, anyio.create_task_group() as waiting:
        end = house.issuer.last_end
        task = await client.create("paced", key="waiting", steps=0)

        async def collect():
            results.append(text(await client.collect(task.taskId)))

        waiting.start_soon(collect)
        await client.collecting()
        await anyio.sleep(end - time.time())
        async with house.session("alice") as other:
            await other.call("advance", key="waiting")
    assert results == [ONCE]


async def test_tasks_belong_to_their_owner_in_every_session_and_another_finds_nothing(house):
    async with house.session("alice") as client:
        task = await client.create("paced", key="owner", steps=0)
        await client.call("advance", key="owner")
    async with house.session("alice") as again:
        assert text(await again.collect(task.taskId)) == ONCE
    async with house.session("bob") as other:
        assert await other.list_all() == []
        with pytest.raises(McpError) as raised:
            await other.collect(task.taskId)
        assert raised.value.error.code == INVALID_PARAMS


async def test_issuer_that_cannot_be_asked_ends_the_connection_but_not_the_tasks(house):
    with ended_by(503):
        async with house.session("alice") as client:
            task = await client.create("echo", text="kept")
            house.issuer.broken = True
            await client.list_all()
    house.issuer.broken = False
    async with house.session("alice") as again:
        assert text(await again.collect(task.taskId)) == "kept"


async def test_fastmcp_runs_a_task_with_a_bearer_token(house):
    async with fastmcp.Client(house.url, auth=house.issuer.token("carol")) as client:
        task = await client.call_tool("paced", {"key": "carol", "steps": 0}, task=True)
        await client.call_tool("advance", {"key": "carol"})
        assert (await task).structured_content == {"result": ONCE}
    async with house.session("carol") as again:
        assert [kept.taskId for kept in await again.list_all()] == [task.task_id]
