// A refusal is not the end: the SDK's client learns why, and goes on.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { StreamableHTTPError } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { call, createTask, ended, getResult, outcome, related } from './calls.mjs';
import { connect, startServer, startTaskgateWith } from './kit.mjs';
import { advance } from './talking.mjs';

const ONCE = { content: [{ type: 'text', text: 'started 1 times' }] };

let server;
const gates = [];
before(async () => {
  server = await startServer('talking-server.mjs');
});
after(async () => {
  for (const gate of gates) assert.equal(await gate.stop(), 0, 'taskgate ends cleanly');
  await server?.stop();
});

/** A taskgate with these sections, for one test. */
async function gateWith(sections) {
  const gate = await startTaskgateWith(`
    ${sections}
    [tasks]
    poll_interval = "20ms"
    [[upstream]]
    url = ${JSON.stringify(server.url)}
  `);
  gates.push(gate);
  return gate;
}

/** Whether the client was told this status, with these words. */
const told = (status, words) => (error) => {
  assert.ok(error instanceof StreamableHTTPError);
  assert.equal(error.code, status);
  assert.match(error.message, words);
  return true;
};

test('a client that polls too often is told so, and collects its result', async (t) => {
  const gate = await gateWith('[rate]\ntask_methods = "5/s"');
  const client = await connect(t, gate.url);
  const { taskId } = await createTask(client, 'paced', { key: t.fullName, steps: 0 });
  const polls = Array.from({ length: 50 }, () => client.experimental.tasks.getTask(taskId));
  await assert.rejects(Promise.all(polls), told(429, /rate\.task_methods = 5 in 1s is used up/));
  await Promise.allSettled(polls);

  await advance(client, t.fullName);
  let result;
  while (!(result = await getResult(client, taskId).catch(() => undefined))) await sleep(100);
  assert.deepEqual(result, related(ONCE, taskId));
});

test('a client that creates too many tasks is told so, and goes on with those that it has', async (t) => {
  const gate = await gateWith('[rate]\ncreations = "2/h"');
  const client = await connect(t, gate.url);
  const key = t.fullName;
  const create = () => createTask(client, 'paced', { key, steps: 0 });
  const tasks = [await create(), await create()];
  await assert.rejects(create(), told(429, /rate\.creations = 2 in 1h is used up/));
  await advance(client, key);
  for (const { taskId } of tasks) assert.equal((await ended(client, taskId)).status, 'completed');
});

test('a client that finds no room for its session is told so, and connects later', async (t) => {
  const gate = await gateWith('[server]\nmax_sessions = 1');
  const client = await connect(t, gate.url);
  // Without a task, or its GET stream, the session would give way.
  await createTask(client, 'paced', { key: t.fullName, steps: 0 });
  const refused = await outcome(connect(t, gate.url));
  assert.match(refused.error.message, /server\.max_sessions = 1/);
  await client.transport.terminateSession();
  const later = await connect(t, gate.url);
  await later.ping();
});

test('a client whose session has ended is told so, and starts a new one', async (t) => {
  const gate = await gateWith('');
  const client = await connect(t, gate.url);
  const other = await connect(t, gate.url, { sessionId: client.transport.sessionId });
  await client.transport.terminateSession();
  await assert.rejects(call(other, 'advance', { key: t.fullName, by: 1 }), told(404, /Session not found/));
  await other.close();
  const anew = await connect(t, gate.url);
  await advance(anew, t.fullName);
});

test('a taskgate that stops refuses new tasks, and gives the result of the one that runs', async (t) => {
  const gate = await gateWith('');
  const client = await connect(t, gate.url);
  const { taskId } = await createTask(client, 'paced', { key: t.fullName, steps: 0 });
  const waiting = getResult(client, taskId);
  gate.terminate();
  await gate.said(/drain/);

  const late = await outcome(createTask(client, 'paced', { key: t.fullName, steps: 0 }));
  assert.match(late.error.message, /taskgate is stopping and takes no new tasks/);
  assert.match((await outcome(connect(t, gate.url))).error.message, /taskgate is stopping/);
  await advance(client, t.fullName);
  assert.deepEqual(await waiting, related(ONCE, taskId));
  await client.close();
});
