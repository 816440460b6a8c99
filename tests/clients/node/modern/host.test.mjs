// A host of coding agents, written by hand: it declares the tasks extension on every request, moves a call to
// the background as soon as it is answered with a task, polls it, and has no time limit of its own from then
// on. No request of its is open for longer than `task_after` and a bit. TASKGATE_TEST_SLOW_SECONDS says how
// slow the tool is: 5 if not given.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateTaskResultV2Schema, DetailedTaskV2Schema } from '@modelcontextprotocol/ext-tasks/core/v2';
import { answers, inFrontOfLegacyServer } from './kit.mjs';
import { DECLARES_TASKS, TASKS, Wire } from './wire.mjs';

const SLOW_SECONDS = Number(process.env.TASKGATE_TEST_SLOW_SECONDS ?? 5);
const TASK_AFTER_MS = 1000;
const A_BIT_MS = 500;

const house = inFrontOfLegacyServer();

class Host {
  constructor(url, capabilities = {}) {
    this.wire = new Wire(url, { capabilities: { ...DECLARES_TASKS, ...capabilities } });
    this.asked = [];
  }

  /** Calls a tool: a result, or the task in the background. */
  async call(name, args = {}) {
    const result = await this.wire.request('tools/call', { name, arguments: args });
    if (result.resultType !== 'task') return { result };
    assertShape(CreateTaskResultV2Schema, result, CREATED);
    return { task: result, ended: this.#inBackground(result) };
  }

  async #inBackground({ taskId }) {
    for (;;) {
      const task = await this.get(taskId);
      if (task.status === 'input_required') await this.#answer(task);
      else if (task.status !== 'working') return task;
      await sleep(task.pollIntervalMs);
    }
  }

  async get(taskId) {
    const task = await this.wire.request('tasks/get', { taskId });
    assert.equal(task.resultType, 'complete');
    assert.equal(task.taskId, taskId);
    assertShape(DetailedTaskV2Schema, task, [...CREATED, ...(INLINED[task.status] ?? [])]);
    return task;
  }

  async #answer({ taskId, inputRequests }) {
    const inputResponses = {};
    for (const [key, { method, params }] of Object.entries(inputRequests)) {
      assert.ok(!this.asked.includes(key), 'a key is never used again');
      this.asked.push(key);
      inputResponses[key] = answers[method](params ?? {});
    }
    const acknowledged = await this.wire.request('tasks/update', { taskId, inputResponses });
    assertAcknowledged(acknowledged);
  }
}

// The members of a task, and what each state has besides.
const CREATED = [
  'resultType',
  'taskId',
  'status',
  'statusMessage',
  'createdAt',
  'lastUpdatedAt',
  'ttlMs',
  'pollIntervalMs',
  '_meta',
];
const INLINED = { input_required: ['inputRequests'], completed: ['result'], failed: ['error'] };

// The schema says what has to be there, and the list what may be.
function assertShape(schema, value, members) {
  const { error } = schema.safeParse(value);
  assert.equal(error, undefined, `${error}: ${JSON.stringify(value)}`);
  for (const member of Object.keys(value)) assert.ok(members.includes(member), `a task has no ${member}`);
}

function assertAcknowledged(result) {
  assert.equal(result.resultType, 'complete');
  for (const member of Object.keys(result)) assert.ok(['resultType', '_meta'].includes(member), member);
}

function assertNoneWasOpenLong({ wire }) {
  for (const { method, openMs } of wire.exchanges) {
    assert.ok(openMs < TASK_AFTER_MS + A_BIT_MS, `${method} was open for ${Math.round(openMs)} ms`);
  }
}

test('a slow call ends in the background, and nothing waits for it', async () => {
  const host = new Host(house.gate.url);
  const { capabilities } = await host.wire.request('server/discover');
  assert.deepEqual(capabilities.extensions[TASKS], {});
  const { tools } = await host.wire.request('tools/list');
  assert.ok(tools.some(({ name }) => name === 'slow_compute'));

  const label = 'slow in the background';
  const { task, ended } = await host.call('slow_compute', { seconds: SLOW_SECONDS, label });
  assert.notEqual(task, undefined, 'the call has become a task');
  assert.equal(task.status, 'working');

  // The agent goes on meanwhile.
  const meanwhile = await host.call('greet', { name: 'Ada' });
  assert.equal(meanwhile.result.resultType, 'complete');
  assert.deepEqual(meanwhile.result.content, [{ type: 'text', text: 'Hello, Ada!' }]);

  const { status, result } = await ended;
  assert.equal(status, 'completed');
  assert.deepEqual(result.content, [{ type: 'text', text: `computed ${label} for ${SLOW_SECONDS} s` }]);
  assertNoneWasOpenLong(host);
});

test('many slow calls at once each end as their own', async () => {
  const host = new Host(house.gate.url);
  const labels = Array.from({ length: 10 }, (_, at) => `one of many ${at}`);
  const calls = await Promise.all(labels.map((label) => host.call('slow_compute', { seconds: 2, label })));
  const texts = (await Promise.all(calls.map(({ ended }) => ended))).map(
    ({ result }) => result.content[0].text,
  );
  assert.deepEqual(
    texts,
    labels.map((label) => `computed ${label} for 2 s`),
  );
  assert.equal(new Set(calls.map(({ task }) => task.taskId)).size, labels.length);
  assertNoneWasOpenLong(host);
});

test('a task that asks is answered in the background, each question once', async () => {
  const host = new Host(house.gate.url, { elicitation: { form: {} } });
  const one = await host.call('confirm_delete', { filename: 'a.txt' });
  const two = await host.call('multi_input');
  assert.equal((await one.ended).result.content[0].text, 'deleted a.txt');
  assert.equal((await two.ended).result.content[0].text, 'Ada, true');
  assert.equal(host.asked.length, 3);
  assertNoneWasOpenLong(host);
});

test('a question is the same at every poll until it is answered, and then it is gone at once', async () => {
  const host = new Host(house.gate.url, { elicitation: { form: {} } });
  const { wire } = host;
  const call = { name: 'confirm_delete', arguments: { filename: 'b.txt' } };
  const { taskId, pollIntervalMs } = await wire.request('tools/call', call);
  let waiting = await host.get(taskId);
  while (waiting.status === 'working') {
    await sleep(pollIntervalMs);
    waiting = await host.get(taskId);
  }
  assert.equal(waiting.status, 'input_required');
  assert.deepEqual((await host.get(taskId)).inputRequests, waiting.inputRequests);
  const [[key, { method, params }]] = Object.entries(waiting.inputRequests);
  assert.equal(method, 'elicitation/create');
  assert.equal(params.message, 'Delete b.txt?');

  const update = {
    taskId,
    inputResponses: { [key]: answers[method](params), unknown: { action: 'accept' } },
  };
  assertAcknowledged(await wire.request('tasks/update', update));
  // A client that polls at once must not ask its user again.
  assert.equal((await host.get(taskId)).inputRequests?.[key], undefined);
  assertAcknowledged(await wire.request('tasks/update', update));
  let ended = await host.get(taskId);
  while (ended.status !== 'completed') {
    await sleep(pollIntervalMs);
    ended = await host.get(taskId);
  }
  assert.equal(ended.result.content[0].text, 'deleted b.txt');
});

test('a tool that fails completes its task, and an error of the protocol fails it', async () => {
  const host = new Host(house.gate.url);
  const failing = await host.call('failing_job');
  const erring = await host.call('protocol_error_job');
  const failed = await failing.ended;
  assert.equal(failed.status, 'completed');
  assert.equal(failed.result.isError, true);
  assert.equal(failed.result._meta?.['io.modelcontextprotocol/related-task'], undefined);
  const erred = await erring.ended;
  assert.equal(erred.status, 'failed');
  assert.equal(erred.error.code, 4050);
  assert.deepEqual(erred.error.data, { reason: 'gone' });
});

test('cancelling a task ends its call, and may be repeated', async () => {
  const host = new Host(house.gate.url);
  const label = 'cancelled in the background';
  const call = { name: 'slow_compute', arguments: { seconds: 60, label } };
  const { taskId } = await host.wire.request('tools/call', call);
  assert.equal((await host.get(taskId)).status, 'working');
  assertAcknowledged(await host.wire.request('tasks/cancel', { taskId }));
  assertAcknowledged(await host.wire.request('tasks/cancel', { taskId }));
  let task = await host.get(taskId);
  while (task.status === 'working') task = await host.get(taskId);
  assert.equal(task.status, 'cancelled');
  const told = { name: 'wait_until', arguments: { label, what: 'aborted' } };
  assert.equal((await host.wire.request('tools/call', told)).resultType, 'complete');
});

test('a call that is given up before it is a task is cancelled at the server', async () => {
  const host = new Host(house.gate.url);
  const label = 'given up at once';
  const given = new AbortController();
  const call = { name: 'slow_compute', arguments: { seconds: 60, label } };
  const hanging = assert.rejects(host.wire.request('tools/call', call, { signal: given.signal }));
  const until = (what) => host.wire.request('tools/call', { name: 'wait_until', arguments: { label, what } });
  await until('started');
  given.abort();
  await hanging;
  await until('aborted');
});

test('a task is found without its routing header, and not with a wrong one', async () => {
  const host = new Host(house.gate.url);
  const call = { name: 'slow_compute', arguments: { seconds: 3, label: 'routed' } };
  const { taskId } = await host.wire.request('tools/call', call);
  const bare = { 'mcp-name': undefined };
  assert.equal((await host.wire.request('tasks/get', { taskId }, { headers: bare })).taskId, taskId);
  const wrong = { headers: { 'mcp-name': 'another' } };
  await assert.rejects(host.wire.request('tasks/get', { taskId }, wrong), { code: -32020 });
  assert.equal(host.wire.exchanges.at(-1).status, 400);
  await host.wire.request('tasks/cancel', { taskId });
});

test('a request without the extension finds no task and makes none', async () => {
  const host = new Host(house.gate.url);
  const { taskId } = (await host.call('slow_compute', { seconds: 2, label: 'declared' })).task;
  const undeclared = new Wire(house.gate.url, { capabilities: {} });
  for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
    await assert.rejects(undeclared.request(method, { taskId, inputResponses: {} }), {
      code: -32021,
      data: { requiredCapabilities: DECLARES_TASKS },
    });
    assert.equal(undeclared.exchanges.at(-1).status, 400);
  }
  const call = { name: 'slow_compute', arguments: { seconds: 2, label: 'undeclared' } };
  assert.equal((await undeclared.request('tools/call', call)).resultType, 'complete');
});
