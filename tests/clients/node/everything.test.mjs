// The SDK client through taskgate in front of the official server-everything over stdio, which has
// tasks of its own: left alone at first, then with taskgate's tasks beside them, then in their place.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';
import {
  answering,
  answerQuestions,
  assertCreated,
  call,
  collect,
  createTask,
  ended,
  getResult,
  INVALID_PARAMS,
  listAll,
  outcome,
  related,
  TASKS_CAPABILITY,
} from './calls.mjs';
import { connect, connectStdio, npmServer, startTaskgate, startTaskgateWith } from './kit.mjs';

const COMMAND = npmServer('everything');
const direct = (t, options) => connectStdio(t, COMMAND[0], COMMAND.slice(1), options);

// A server's tool that runs only as a task, and one that runs only plainly.
const RESEARCH = 'simulate-research-query';
const LONG = 'trigger-long-running-operation';

describe('in front of server-everything, left alone', () => {
  let gate;
  before(async () => {
    gate = await startTaskgateWith(`
      [[upstream]]
      command = ${JSON.stringify(COMMAND)}
      native = "keep"
    `);
  });
  after(async () => assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly'));

  test('what the server says of itself and of its tools is unchanged', async (t) => {
    const [before, through] = [await direct(t, answering), await connect(t, gate.url, answering)];
    assert.deepEqual(through.getServerCapabilities(), before.getServerCapabilities());
    assert.deepEqual(through.getServerVersion(), before.getServerVersion());
    assert.equal(through.getInstructions(), before.getInstructions());
    assert.deepEqual(await through.listTools(), await before.listTools());
    assert.deepEqual(await through.listResources(), await before.listResources());
    assert.deepEqual(await through.listPrompts(), await before.listPrompts());
  });

  test('its own task is created, polled, collected and listed', async (t) => {
    const client = await connect(t, gate.url);
    const stream = client.experimental.tasks.callToolStream(
      { name: RESEARCH, arguments: { topic: 'tides' } },
      CallToolResultSchema,
      { task: { ttl: 60_000 } },
    );
    const messages = await collect(stream);

    const { type, task } = messages[0];
    assert.equal(type, 'taskCreated');
    assert.equal(task.ttl, 300_000, 'the ttl is the one that the tool sets');
    const said = messages.filter((message) => message.type === 'taskStatus');
    assert.match(said[0].task.statusMessage, /^Gathering sources/);
    const { result } = messages.at(-1);
    assert.match(result.content[0].text, /^# Research Report: tides/);
    assert.deepEqual(result, related({ content: result.content }, task.taskId));

    assert.deepEqual(await listAll(client), [await ended(client, task.taskId)]);
  });

  test('its own task asks the user by tasks/result', async (t) => {
    const client = await connect(t, gate.url, answering);
    const asked = answerQuestions(client, { interpretation: 'snake' });
    const { taskId } = await createTask(client, RESEARCH, { topic: 'python', ambiguous: true });
    const { content } = await getResult(client, taskId);
    assert.match(content[0].text, /^# Research Report: python \(snake\)/);
    assert.equal(asked.length, 1);
    assert.match(asked[0].message, /multiple interpretations/);
  });

  test('its own task is cancelled, and it knows no other', async (t) => {
    const client = await connect(t, gate.url);
    const { taskId } = await createTask(client, RESEARCH, { topic: 'tides' });
    assert.equal((await client.experimental.tasks.cancelTask(taskId)).status, 'cancelled');
    assert.equal((await client.experimental.tasks.getTask(taskId)).status, 'cancelled');
    const again = await outcome(client.experimental.tasks.cancelTask(taskId));
    assert.equal(again.error?.code, INVALID_PARAMS);
    const unknown = await outcome(client.experimental.tasks.getTask('no-such-task'));
    assert.equal(unknown.error?.code, INVALID_PARAMS);
  });

  test('plain calls are the same as without taskgate', async (t) => {
    const [before, through] = [await direct(t), await connect(t, gate.url)];
    for (const [name, args] of [
      ['echo', { message: 'grüße 🚪' }],
      ['get-structured-content', { location: 'Chicago' }],
      ['get-sum', { a: 1, b: 'two' }],
      ['no-such-tool', {}],
    ]) {
      const expected = await outcome(call(before, name, args));
      assert.deepEqual(await outcome(call(through, name, args)), expected, name);
    }
  });

  test('progress of a plain call arrives', async (t) => {
    const client = await connect(t, gate.url);
    const reports = [];
    const onprogress = (report) => reports.push(report);
    await call(client, LONG, { duration: 0.1, steps: 2 }, { onprogress });
    assert.deepEqual(reports, [
      { progress: 1, total: 2 },
      { progress: 2, total: 2 },
    ]);
  });

  test('the server asks the user and the model within a plain call', async (t) => {
    const client = await connect(t, gate.url, answering);
    const asked = answerQuestions(client, { name: 'Ada' });
    const elicited = await call(client, 'trigger-elicitation-request', {});
    assert.match(JSON.stringify(elicited.content), /Ada/);
    const sampled = await call(client, 'trigger-sampling-request', { prompt: 'Hello?', maxTokens: 10 });
    assert.match(JSON.stringify(sampled.content), /an answer/);

    const [elicitation, sampling] = asked;
    assert.equal(elicitation.requestedSchema.properties.number.default, 3.14);
    assert.match(sampling.messages[0].content.text, /Hello\?/);
  });
});

describe('in front of server-everything, with the command line alone', () => {
  let gate;
  before(async () => (gate = await startTaskgate('--', ...COMMAND)));
  after(async () => assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly'));

  test('its own tasks stay, and every other tool gets taskgate\'s', async (t) => {
    const [before, client] = [await direct(t), await connect(t, gate.url)];
    const { tools } = await before.listTools();
    const native = ({ execution }) => ['optional', 'required'].includes(execution?.taskSupport);
    assert.deepEqual(await client.listTools(), {
      tools: tools.map((tool) => (native(tool) ? tool : { ...tool, execution: { taskSupport: 'optional' } })),
    });

    const theirs = await createTask(client, RESEARCH, { topic: 'tides' });
    const ours = await createTask(client, LONG, { duration: 0.2, steps: 2 });
    assert.equal(theirs.ttl, 300_000);
    for (const { taskId } of [ours, theirs]) {
      assert.equal((await ended(client, taskId)).status, 'completed');
      assert.deepEqual((await getResult(client, taskId))._meta, related({}, taskId)._meta);
    }
    assert.deepEqual(
      (await listAll(client)).map(({ taskId }) => taskId),
      [ours.taskId, theirs.taskId],
    );
  });
});

describe('in front of server-everything, its tasks replaced', () => {
  let gate;
  before(async () => {
    gate = await startTaskgateWith(`
      [tasks]
      poll_interval = "20ms"
      [[upstream]]
      command = ${JSON.stringify(COMMAND)}
      native = "replace"
    `);
  });
  after(async () => assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly'));

  test('every tool takes tasks, and nothing else changes', async (t) => {
    const [before, through] = [await direct(t), await connect(t, gate.url)];
    assert.deepEqual(through.getServerCapabilities(), {
      ...before.getServerCapabilities(),
      tasks: TASKS_CAPABILITY,
    });
    const { tools } = await before.listTools();
    assert.deepEqual(await through.listTools(), {
      tools: tools.map((tool) => ({ ...tool, execution: { taskSupport: 'optional' } })),
    });
  });

  test('a tool without tasks is created, polled, collected and listed as one', async (t) => {
    const args = { duration: 0.2, steps: 2 };
    const plain = await call(await direct(t), LONG, args);

    const client = await connect(t, gate.url);
    const created = await createTask(client, LONG, args);
    assertCreated(created);
    const task = await ended(client, created.taskId);
    assert.equal(task.status, 'completed');
    assert.deepEqual(await getResult(client, created.taskId), related(plain, created.taskId));
    assert.deepEqual(await listAll(client), [task]);
  });

  test('a task is cancelled', async (t) => {
    const client = await connect(t, gate.url);
    const { taskId } = await createTask(client, LONG, { duration: 2, steps: 2 });
    assert.equal((await client.experimental.tasks.cancelTask(taskId)).status, 'cancelled');
    assert.equal((await ended(client, taskId)).status, 'cancelled');
  });

  test('a result with isError makes a failed task that says why', async (t) => {
    const args = { a: 1, b: 'two' };
    const plain = await call(await direct(t), 'get-sum', args);
    assert.equal(plain.isError, true);

    const client = await connect(t, gate.url);
    const { taskId } = await createTask(client, 'get-sum', args);
    const task = await ended(client, taskId);
    assert.equal(task.status, 'failed');
    assert.match(task.statusMessage, /Invalid arguments for tool get-sum/);
    assert.deepEqual(await getResult(client, taskId), related(plain, taskId));
  });

  test('a JSON-RPC error makes a failed task that says why', async (t) => {
    const client = await connect(t, gate.url, { capabilities: { elicitation: { url: {} } } });
    const { taskId } = await createTask(client, 'trigger-url-elicitation', {
      url: 'http://localhost/consent',
      errorPath: true,
    });
    const task = await ended(client, taskId);
    assert.equal(task.status, 'failed');
    assert.match(task.statusMessage, /browser-based authorization/);
    const { error } = await outcome(getResult(client, taskId));
    assert.equal(error.code, -32042);
    assert.equal(error.data.elicitations.length, 1);
  });

  test('a tool that insists on tasks of its own fails and says so', async (t) => {
    const client = await connect(t, gate.url);
    const { taskId } = await createTask(client, RESEARCH, { topic: 'tides' });
    const task = await ended(client, taskId);
    assert.equal(task.status, 'failed');
    assert.match(task.statusMessage, /requires task augmentation/);
  });
});
