// `taskgate stdio` around real stdio servers, as a desktop client would start it.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, test } from 'node:test';
import {
  assertCreated,
  call,
  collect,
  createTask,
  ended,
  getResult,
  listAll,
  related,
  TASKS_CAPABILITY,
} from './calls.mjs';
import { configFile, connectStdio, npmServer, TASKGATE } from './kit.mjs';
import { answerAll, ANSWERS_ALL, Inbox, statesOf, statuses } from './talking.mjs';

const EVERYTHING = npmServer('everything');
const LONG = 'trigger-long-running-operation';
const HELLO = {
  protocolVersion: '2025-11-25',
  capabilities: {},
  clientInfo: { name: 'by-hand', version: '1.0.0' },
};

/** The arguments that wrap server-everything, with taskgate's tasks in the place of its own. */
function everythingReplaced(t) {
  const { file, remove } = configFile(`
    [tasks]
    poll_interval = "20ms"
    [[upstream]]
    command = ${JSON.stringify(EVERYTHING)}
    native = "replace"
  `);
  t.after(remove);
  return ['stdio', '--config', file];
}

describe('driven by the SDK', () => {
  test('one line gives a server its tasks', async (t) => {
    const command = npmServer('memory');
    const direct = await connectStdio(t, command[0], command.slice(1));
    const client = await connectStdio(t, TASKGATE, ['stdio', '--', ...command]);
    assert.deepEqual(client.getServerVersion(), direct.getServerVersion());
    assert.deepEqual(client.getServerCapabilities(), {
      ...direct.getServerCapabilities(),
      tasks: TASKS_CAPABILITY,
    });
    const { tools } = await direct.listTools();
    assert.deepEqual(await client.listTools(), {
      tools: tools.map((tool) => ({ ...tool, execution: { taskSupport: 'optional' } })),
    });

    const args = { query: 'nothing' };
    const plain = await call(direct, 'search_nodes', args);
    assert.deepEqual(await call(client, 'search_nodes', args), plain);
    const created = await createTask(client, 'search_nodes', args);
    assertCreated(created);
    assert.deepEqual(await getResult(client, created.taskId), related(plain, created.taskId));
    assert.deepEqual(await listAll(client), [await ended(client, created.taskId)]);
  });

  test('one line leaves the tasks of a server that has its own', async (t) => {
    const client = await connectStdio(t, TASKGATE, ['stdio', '--', ...EVERYTHING]);
    await client.listTools();
    const messages = await collect(
      client.experimental.tasks.callToolStream({
        name: 'simulate-research-query',
        arguments: { topic: 'tides' },
      }),
    );
    assert.equal(messages[0].task.ttl, 300_000, 'the ttl is the one that the tool sets');
    assert.match(messages.at(-1).result.content[0].text, /^# Research Report: tides/);
  });

  test('a task asks, and the answer reaches the server', async (t) => {
    const client = await connectStdio(t, TASKGATE, everythingReplaced(t), { capabilities: ANSWERS_ALL });
    const asked = answerAll(client);
    for (const [tool, answer] of [
      ['trigger-elicitation-request', /Ada/],
      ['trigger-sampling-request', /an answer/],
    ]) {
      const before = asked.items.length;
      const { taskId } = await createTask(client, tool, { prompt: 'Hello?' });
      assert.match(JSON.stringify((await getResult(client, taskId)).content), answer);
      const questions = asked.items.slice(before).filter(({ method }) => method !== 'roots/list');
      assert.equal(questions.length, 1);
      assert.deepEqual(questions[0].params._meta, related({}, taskId)._meta);
    }
  });

  test('progress and status of a task arrive', async (t) => {
    const client = await connectStdio(t, TASKGATE, everythingReplaced(t));
    const told = statuses(client);
    const reports = new Inbox();
    const options = { onprogress: reports.push };
    const { taskId } = await createTask(client, LONG, { duration: 0.2, steps: 2 }, options);
    await told.until((items) => statesOf(items, taskId).at(-1) === 'completed');
    // The second report comes with the end, which may overtake it.
    assert.deepEqual(reports.items[0], related({ progress: 1, total: 2 }, taskId));
  });

  test('a server that does not end by itself has ended when the client has closed', async (t) => {
    const server = [process.execPath, join(import.meta.dirname, 'stubborn-server.mjs')];
    const client = await connectStdio(t, TASKGATE, ['stdio', '--', ...server]);
    const pid = Number(client.getInstructions());
    assert.ok(alive(pid));
    // The SDK waits for a while, and then kills taskgate but not what taskgate has started.
    await client.close();
    assert.ok(!alive(pid));
  });

  test('a task is cancelled', async (t) => {
    const client = await connectStdio(t, TASKGATE, everythingReplaced(t));
    const { taskId } = await createTask(client, LONG, { duration: 600, steps: 1 });
    assert.equal((await client.experimental.tasks.cancelTask(taskId)).status, 'cancelled');
    assert.equal((await ended(client, taskId)).status, 'cancelled');
  });
});

const alive = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe('as a process', () => {
  /** taskgate with its pipes held by the test, and the inbox of its lines on stdout. */
  function wrap(t, args) {
    const taskgate = spawn(TASKGATE, args, { stdio: ['pipe', 'pipe', 'ignore'] });
    t.after(() => taskgate.kill('SIGKILL'));
    const ended = once(taskgate, 'close');
    const lines = new Inbox();
    createInterface({ input: taskgate.stdout }).on('line', lines.push);
    const send = (message) => taskgate.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
    const answer = async (id) => {
      const is = (line) => JSON.parse(line).id === id;
      return JSON.parse((await lines.until((all) => all.some(is))).find(is));
    };
    const request = (id, method, params) => {
      send({ id, method, params });
      return answer(id);
    };
    const initialize = async () => {
      await request(1, 'initialize', HELLO);
      send({ method: 'notifications/initialized' });
    };
    return { taskgate, ended, lines, request, initialize };
  }

  /** The processes that this one has started, by whichever thread. */
  function children(pid) {
    const threads = readdirSync(`/proc/${pid}/task`);
    const found = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8'));
    return found.join(' ').split(/\s+/).filter(Boolean).map(Number);
  }

  test('stdout has messages only; the end of stdin ends taskgate and the server, whatever runs', async (t) => {
    const { taskgate, ended, lines, request, initialize } = wrap(t, everythingReplaced(t));
    await initialize();
    const asTask = (id, args, rest) =>
      request(id, 'tools/call', { name: LONG, arguments: args, task: {}, ...rest });
    const { result } = await asTask(2, { duration: 0.1, steps: 2 }, { _meta: { progressToken: 'p' } });
    await request(3, 'tasks/result', { taskId: result.task.taskId });
    await request(4, 'tools/call', { name: 'no-such-tool' });
    await request(5, 'no/such/method');
    await asTask(6, { duration: 600, steps: 1 });

    const [server, ...others] = children(taskgate.pid);
    assert.deepEqual(others, []);
    assert.ok(alive(server));
    taskgate.stdin.end();
    assert.deepEqual(await ended, [0, null], 'the exit code is 0');
    assert.ok(!alive(server), 'the server has ended first');
    for (const line of lines.items) assert.equal(JSON.parse(line).jsonrpc, '2.0', line);
  });

  test('the end of stdin before the first message ends taskgate as well', async (t) => {
    const { taskgate, ended, lines } = wrap(t, ['stdio', '--', ...EVERYTHING]);
    taskgate.stdin.end();
    assert.deepEqual(await ended, [0, null]);
    assert.deepEqual(lines.items, []);
  });

  test('a server that dies ends taskgate with an exit code that says so', async (t) => {
    const { taskgate, ended, initialize } = wrap(t, ['stdio', '--', ...EVERYTHING]);
    await initialize();
    process.kill(children(taskgate.pid)[0], 'SIGKILL');
    const [code] = await ended;
    assert.ok(code > 0, `the exit code is ${code}`);
  });

  test('a server that cannot be started is an error message for the client', async (t) => {
    const { taskgate, ended, lines, request } = wrap(t, ['stdio', '--', '/no/such/server']);
    const { error } = await request(1, 'initialize', HELLO);
    assert.match(error.message, /\/no\/such\/server/);
    taskgate.stdin.end();
    await ended;
    for (const line of lines.items) assert.equal(JSON.parse(line).jsonrpc, '2.0', line);
  });
});
