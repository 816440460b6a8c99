// Hosts without tasks in front of a slow tool: the SDK's client with its own timeout, with and without heartbeats, and one
// that gets a job. TASKGATE_TEST_REAL_TIMES=1 takes the times of the promise: a tool of 150 s, the client's 60 s, a
// job after 45 s.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { configFile, connect, connectStdio, startServer, startTaskgateWith, TASKGATE } from './kit.mjs';

const REAL = process.env.TASKGATE_TEST_REAL_TIMES === '1';
const TIMES = REAL
  ? { tool: 150_000, timeout: undefined, heartbeat: '15s', jobAfter: '45s', wait: 50 }
  : { tool: 4000, timeout: 1500, heartbeat: '300ms', jobAfter: '700ms', wait: 1 };
const PATIENCE = { timeout: REAL ? 400_000 : 60_000 };

const config = (upstream, settings) => `[[upstream]]\n${upstream}\n[upstream.tools.report]\n${settings}\n`;
const HEARTBEATS = `heartbeat = "${TIMES.heartbeat}"`;
const JOBS = `job_after = "${TIMES.jobAfter}"`;

const report = { name: 'report', arguments: { ms: TIMES.tool } };
const done = `the report took ${TIMES.tool} ms`;

function text({ content }) {
  assert.equal(content.length, 1);
  return content[0].text;
}

// What a model reads out of the words of an answer: the next call.
function nextCall(result) {
  assert.equal(result.structuredContent, undefined);
  const [, name, args] = /call (\w+) with (\{.*?\})/.exec(text(result)) ?? assert.fail(text(result));
  return { name, arguments: JSON.parse(args) };
}

// Waits as the words say, with a patience of its own for each call.
async function waitFor(callTool, result) {
  assert.match(text(result), /is still running, as job .* Do not call report again for this, it would run twice\.$/);
  for (let waits = 0; ; waits++) {
    const { name, arguments: args } = nextCall(result);
    result = await callTool({ name, arguments: { ...args, seconds: TIMES.wait } });
    if (!/is still running after .* which is normal/.test(text(result))) return { result, waits };
  }
}

// They outlive the clients of the tests.
const started = [];
const starts = async (starting) => {
  started.push(await starting);
  return started.at(-1);
};
after(() => Promise.all(started.map((process) => process.stop())));

let server;
before(async () => (server = await starts(startServer('slow-tools-server.mjs'))));

/** The address of a taskgate in front of a server, with settings for its slow tool. */
const inFront = async (settings, { url } = server) =>
  (await starts(startTaskgateWith(config(`url = ${JSON.stringify(url)}`, settings)))).url;

describe("the SDK's client with its own timeout", { concurrency: true }, () => {
  const options = { timeout: TIMES.timeout, resetTimeoutOnProgress: true, onprogress: () => {} };

  test('gets the result with heartbeats and resetTimeoutOnProgress', PATIENCE, async (t) => {
    const client = await connect(t, await inFront(HEARTBEATS));
    const told = [];
    const onprogress = (progress) => told.push(progress);
    const result = await client.callTool(report, CallToolResultSchema, { ...options, onprogress });
    assert.equal(text(result), done);
    assert.ok(told.length > 3, `${told.length} heartbeats`);
    assert.match(told[0].message, /"report" has run for /);
    for (let at = 1; at < told.length; at++) assert.ok(told[at].progress > told[at - 1].progress);
  });

  test('does not without heartbeats', PATIENCE, async (t) => {
    const client = await connect(t, await inFront(''));
    await assert.rejects(client.callTool(report, CallToolResultSchema, options), /timed out/i);
  });
});

describe('a host that neither resets its timeout nor knows tasks', { concurrency: true }, () => {
  const patience = { timeout: TIMES.timeout ?? 60_000 };

  const getsAJob = async (client) => {
    const { tools } = await client.listTools();
    assert.equal(tools[0].outputSchema, undefined);
    assert.deepEqual(tools.slice(2).map(({ name }) => name), ['wait_for_job', 'cancel_job', 'list_jobs']);
    const callTool = (params) => client.callTool(params, CallToolResultSchema, patience);
    const { result, waits } = await waitFor(callTool, await callTool(report));
    assert.equal(text(result), done);
    // The server's very result: it fits the schema that the SDK was not told.
    assert.deepEqual(result.structuredContent, { ms: TIMES.tool });
    assert.ok(waits > 0);
    return callTool;
  };

  test('gets a job and its result over HTTP, and the call has run once', PATIENCE, async (t) => {
    const own = await starts(startServer('slow-tools-server.mjs'));
    const client = await connect(t, await inFront(JOBS, own));
    assert.match(client.getInstructions(), /do not make the call again/);
    await getsAJob(client);
    // The server has a state for all sessions.
    assert.equal(text(await client.callTool({ name: 'count', arguments: {} })), '1');
  });

  // What starts taskgate stdio in front of a server of its own.
  const overStdio = (t) => {
    const command = [process.execPath, `${import.meta.dirname}/slow-tools-server.mjs`, '--stdio'];
    const { file, remove } = configFile(config(`command = ${JSON.stringify(command)}`, JOBS));
    t.after(remove);
    return ['stdio', '--config', file];
  };

  test('over taskgate stdio', PATIENCE, async (t) => {
    await getsAJob(await connectStdio(t, TASKGATE, overStdio(t)));
  });

  const transports = {
    HTTP: async () => new Http2(new URL(await inFront(JOBS))),
    stdio: async (t) => new Stdio2({ command: TASKGATE, args: overStdio(t), stderr: 'ignore' }),
  };
  for (const mode of [{ pin: '2026-07-28' }, 'legacy']) {
    for (const [over, transport] of Object.entries(transports)) {
      test(`with the SDK 2.x over ${over}, ${JSON.stringify(mode)}`, PATIENCE, async (t) => {
        const client = new Client2({ name: 'host', version: '1' }, { versionNegotiation: { mode } });
        await client.connect(await transport(t));
        t.after(() => client.close());
        const { tools } = await client.listTools();
        assert.equal(tools[0].outputSchema, undefined);
        const callTool = (params) => client.callTool(params, patience);
        const { result } = await waitFor(callTool, await callTool(report));
        assert.equal(text(result), done);
        assert.deepEqual(result.structuredContent, { ms: TIMES.tool });
        // Plainly too.
        const quick = await callTool({ name: 'report', arguments: { ms: 1 } });
        assert.deepEqual(quick.structuredContent, { ms: 1 });
      });
    }
  }
});

describe('structured results', { concurrency: true }, () => {
  const quick = { name: 'report', arguments: { ms: 1 } };

  test('pass the schema check of a client that lists a tool without jobs', PATIENCE, async (t) => {
    const client = await connect(t, await inFront(HEARTBEATS));
    const { tools } = await client.listTools();
    assert.ok(tools[0].outputSchema);
    assert.deepEqual((await client.callTool(quick)).structuredContent, { ms: 1 });
  });

  test('come plainly from a tool that may be answered with a job', PATIENCE, async (t) => {
    const client = await connect(t, await inFront(JOBS));
    await client.listTools();
    assert.deepEqual((await client.callTool(quick)).structuredContent, { ms: 1 });
  });

  test('come out of a task, whose client keeps the schema', PATIENCE, async (t) => {
    const client = await connect(t, await inFront(JOBS), { capabilities: { tasks: { list: {} } } });
    const { tools } = await client.listTools();
    assert.ok(tools[0].outputSchema);
    assert.deepEqual(tools.map(({ name }) => name), ['report', 'count']);
    const slow = { name: 'report', arguments: { ms: 1200 } };
    const stream = client.experimental.tasks.callToolStream(slow, CallToolResultSchema, { task: {} });
    let last;
    for await (const message of stream) last = message;
    assert.equal(last.type, 'result');
    assert.deepEqual(last.result.structuredContent, { ms: 1200 });
  });
});
