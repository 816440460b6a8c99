// Clients of both generations at once on one endpoint: one principal sees one set of tasks, each client in
// its own form.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createTask, ended, getResult, listAll, related } from '../calls.mjs';
import { connect as connectLegacy, startServer, startTaskgateWith } from '../kit.mjs';
import { taskToolsConfig } from './task-tools.mjs';
import { Wire } from './wire.mjs';

const INVALID_PARAMS = -32602;
const house = {};

before(async () => {
  house.server = await startServer('modern/legacy-server.mjs');
  house.gate = await startTaskgateWith(`
    [auth]
    mode = "header"
    header = "x-user"
    trusted_peers = ["127.0.0.1"]
    ${taskToolsConfig(`url = ${JSON.stringify(house.server.url)}`)}
  `);
});
after(async () => {
  const code = await house.gate?.stop();
  await house.server?.stop();
  assert.equal(code, 0, 'taskgate ends cleanly');
});

const legacy = (t, user) =>
  connectLegacy(t, house.gate.url, { requestInit: { headers: { 'x-user': user } } });
const modern = (user) => new Wire(house.gate.url, { headers: { 'x-user': user } });
const slow = (label) => ({ name: 'slow_compute', arguments: { seconds: 2, label } });

async function endedModern(wire, taskId) {
  for (;;) {
    const task = await wire.request('tasks/get', { taskId });
    if (task.status !== 'working') return task;
    await new Promise((resolve) => setTimeout(resolve, task.pollIntervalMs));
  }
}

test('a task of the newer generation is seen by the same principal in the older one', async (t) => {
  const ada = { legacy: await legacy(t, 'ada'), modern: modern('ada') };
  const { taskId } = await ada.modern.request('tools/call', slow('made modern'));
  assert.deepEqual(
    (await listAll(ada.legacy)).map((task) => task.taskId),
    [taskId],
  );
  const task = await ended(ada.legacy, taskId);
  assert.equal(task.status, 'completed');
  const expected = { content: [{ type: 'text', text: 'computed made modern for 2 s' }] };
  assert.deepEqual(await getResult(ada.legacy, taskId), related(expected, taskId));
  assert.deepEqual((await ada.modern.request('tasks/get', { taskId })).result.content, expected.content);
});

test('a task of the older generation is seen by the same principal in the newer one', async (t) => {
  const bob = { legacy: await legacy(t, 'bob'), modern: modern('bob') };
  const { name, arguments: args } = slow('made legacy');
  const { taskId } = await createTask(bob.legacy, name, args);
  const task = await endedModern(bob.modern, taskId);
  assert.equal(task.status, 'completed');
  assert.deepEqual(task.result.content, [{ type: 'text', text: 'computed made legacy for 2 s' }]);
});

test('a tool that failed is failed in the older form, and completed in the newer one', async (t) => {
  const cyd = { legacy: await legacy(t, 'cyd'), modern: modern('cyd') };
  const { taskId } = await cyd.modern.request('tools/call', { name: 'failing_job', arguments: {} });
  const task = await endedModern(cyd.modern, taskId);
  assert.equal(task.status, 'completed');
  assert.equal(task.result.isError, true);
  assert.equal((await ended(cyd.legacy, taskId)).status, 'failed');
});

test('the task of another principal looks like one that never was, in either generation', async (t) => {
  const dan = modern('dan');
  const eve = { legacy: await legacy(t, 'eve'), modern: modern('eve') };
  const { taskId } = await dan.request('tools/call', slow('of Dan'));
  const never = 'd0'.repeat(16);
  const messages = [];
  for (const id of [taskId, never]) {
    for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
      const params = { taskId: id, ...(method === 'tasks/update' ? { inputResponses: {} } : {}) };
      const { error } = await eve.modern.exchange(method, params);
      assert.equal(error.code, INVALID_PARAMS);
      messages.push(error.message.replaceAll(id, ''));
    }
    await assert.rejects(eve.legacy.experimental.tasks.getTask(id), { code: INVALID_PARAMS });
  }
  assert.deepEqual(messages.slice(0, 3), messages.slice(3));
  assert.deepEqual(await listAll(eve.legacy), []);
  assert.equal((await endedModern(dan, taskId)).status, 'completed');
});

test('without authentication the id of a task is enough to read it', async () => {
  const gate = await startTaskgateWith(taskToolsConfig(`url = ${JSON.stringify(house.server.url)}`));
  try {
    const { taskId } = await new Wire(gate.url).request('tools/call', slow('found by its id'));
    assert.equal((await endedModern(new Wire(gate.url), taskId)).status, 'completed');
  } finally {
    await gate.stop();
  }
});
