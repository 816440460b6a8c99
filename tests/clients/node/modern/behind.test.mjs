// A server of the newer generation only stands behind: its own questions and answers come as it sends them, and it
// gets tasks that it does not have.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { startServer, startTaskgateWith } from '../kit.mjs';
import { ANSWERS_ALL, answers, call, connect, text } from './kit.mjs';
import { taskToolsConfig } from './task-tools.mjs';
import { DECLARES_TASKS, TASKS, Wire } from './wire.mjs';

const house = {};
before(async () => {
  house.server = await startServer('modern/dual-server.mjs', '--modern-only');
  house.gate = await startTaskgateWith(taskToolsConfig(`url = ${JSON.stringify(house.server.url)}`));
});
after(async () => {
  const code = await house.gate?.stop();
  await house.server?.stop();
  assert.equal(code, 0, 'taskgate ends cleanly');
});

const wireTo = ({ url }) => new Wire(url, { capabilities: ANSWERS_ALL });

async function ended(wire, taskId) {
  for (;;) {
    const task = await wire.request('tasks/get', { taskId });
    if (task.status === 'input_required') {
      const inputResponses = Object.fromEntries(
        Object.entries(task.inputRequests).map(([key, { method, params }]) => [key, answers[method](params)]),
      );
      await wire.request('tasks/update', { taskId, inputResponses });
    } else if (task.status !== 'working') return task;
    await sleep(task.pollIntervalMs);
  }
}

test('the tasks extension is all that is added to what the server says of itself', async () => {
  const direct = await wireTo(house.server).request('server/discover');
  const through = await wireTo(house.gate).request('server/discover');
  const { extensions, ...capabilities } = through.capabilities;
  assert.deepEqual(extensions, { ...direct.capabilities.extensions, [TASKS]: {} });
  assert.deepEqual({ ...through, capabilities }, { ...direct, capabilities: direct.capabilities });
});

test('results and questions are those of the server', async () => {
  for (const [method, params] of [
    ['tools/list', {}],
    ['tools/call', { name: 'greet', arguments: { name: 'Ada' } }],
    ['tools/call', { name: 'test_input_required_result_elicitation', arguments: {} }],
    ['resources/read', { uri: 'test://static-text' }],
    ['prompts/get', { name: 'test_input_required_result_prompt' }],
  ]) {
    const direct = await wireTo(house.server).request(method, params);
    assert.deepEqual(await wireTo(house.gate).request(method, params), direct);
  }
});

test('a client answers its questions, and a seal of the server stays what it is', async (t) => {
  const { client, asked } = await connect(t, house.gate.url);
  assert.equal(text(await call(client, 'test_input_required_result_request_state')), 'state-ok');
  assert.equal(text(await call(client, 'test_input_required_result_multi_round')), 'Ada likes Ada');
  assert.equal(asked.items.length, 3);
});

test('a process that speaks the newer generation is behind as well', async () => {
  const command = [process.execPath, `${import.meta.dirname}/dual-server.mjs`, '--stdio'];
  const gate = await startTaskgateWith(taskToolsConfig(`command = ${JSON.stringify(command)}`));
  try {
    const wire = new Wire(gate.url, { capabilities: { ...DECLARES_TASKS, ...ANSWERS_ALL } });
    const direct = await wireTo(house.server).request('server/discover');
    const through = await wire.request('server/discover');
    assert.deepEqual(through.supportedVersions.includes('2026-07-28'), true);
    assert.deepEqual(through._meta, direct._meta);
    const question = await wire.request('tools/call', { name: 'test_input_required_result_elicitation', arguments: {} });
    assert.deepEqual(Object.keys(question.inputRequests), ['user_name']);
    const { taskId } = await wire.request('tools/call', { name: 'confirm_delete', arguments: { filename: 'a.txt' } });
    assert.equal(text((await ended(wire, taskId)).result), 'deleted a.txt');
    const slow = { name: 'slow_compute', arguments: { seconds: 2, label: 'process' } };
    const task = await wire.request('tools/call', slow);
    assert.equal(text((await ended(wire, task.taskId)).result), 'computed process for 2 s');
  } finally {
    assert.equal(await gate.stop(), 0);
  }
});

test('a slow call becomes a task', async () => {
  const wire = new Wire(house.gate.url);
  const slow = { name: 'slow_compute', arguments: { seconds: 2, label: 'behind' } };
  const { resultType, taskId } = await wire.request('tools/call', slow);
  assert.equal(resultType, 'task');
  assert.equal(text((await ended(wire, taskId)).result), 'computed behind for 2 s');
});

test('questions of the server become questions of the task, and the retry goes up with the answers', async () => {
  const wire = new Wire(house.gate.url, { capabilities: { ...DECLARES_TASKS, ...ANSWERS_ALL } });
  const said = async (name, args = {}) => {
    const { taskId } = await wire.request('tools/call', { name, arguments: args });
    return text((await ended(wire, taskId)).result);
  };
  assert.equal(await said('confirm_delete', { filename: 'a.txt' }), 'deleted a.txt');
  assert.equal(await said('multi_input'), 'Ada, true');
});
