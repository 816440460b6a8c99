// The SDK client's tasks through taskgate, in front of a server that has none.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  answering,
  answerQuestions,
  assertCreated,
  call,
  collect,
  counters,
  createTask,
  ended,
  getResult,
  INVALID_PARAMS,
  listAll,
  oneMore,
  outcome,
  related,
  REQUEST_TIMEOUT,
  TASKS_CAPABILITY,
} from './calls.mjs';
import { connect, startServer, startTaskgateWith } from './kit.mjs';

const HOUR = 3_600_000;

const servers = {
  'a server with JSON answers': { flags: ['--json'] },
  // Only such a server says which of its calls asks a question.
  'a server with SSE answers': { flags: [], asks: true },
  'a server without sessions': { flags: ['--stateless'] },
};

for (const [kind, { flags, asks }] of Object.entries(servers)) {
  describe(`tasks in front of ${kind}`, () => {
    let server;
    let gate;
    before(async () => {
      server = await startServer('plain-server.mjs', ...flags);
      gate = await startTaskgateWith(`
        [tasks]
        poll_interval = "20ms"
        [[upstream]]
        url = ${JSON.stringify(server.url)}
      `);
    });
    after(async () => {
      assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly');
      await server?.stop();
    });

    test('initialize adds the tasks capability and nothing else', async (t) => {
      const direct = await connect(t, server.url);
      const client = await connect(t, gate.url);
      assert.deepEqual(client.getServerCapabilities(), {
        ...direct.getServerCapabilities(),
        tasks: TASKS_CAPABILITY,
      });
      assert.deepEqual(client.getServerVersion(), direct.getServerVersion());
      assert.equal(client.getInstructions(), direct.getInstructions());
      assert.equal(client.transport.protocolVersion, '2025-11-25');
      assert.match(client.transport.sessionId, /^[\x21-\x7e]+$/);
    });

    test('tools/list says that tools take tasks and changes nothing else', async (t) => {
      const direct = await (await connect(t, server.url)).listTools();
      const tools = direct.tools.map((tool) => ({ ...tool, execution: { taskSupport: 'optional' } }));
      assert.deepEqual(await (await connect(t, gate.url)).listTools(), { ...direct, tools });
    });

    test('a task is created, polled and collected', async (t) => {
      const args = { text: 'grüße 🚪' };
      const plain = await call(await connect(t, server.url), 'echo', args);

      const client = await connect(t, gate.url);
      const created = await createTask(client, 'echo', args);
      assertCreated(created);
      assert.equal(created.pollInterval, 20);

      const task = await ended(client, created.taskId);
      assert.equal(task.status, 'completed');
      for (const member of ['taskId', 'createdAt', 'pollInterval']) {
        assert.equal(task[member], created[member], member);
      }
      assert.ok(created.ttl >= HOUR, 'while it runs it is kept for as long as its call may run');
      const lasted = Date.parse(task.lastUpdatedAt) - Date.parse(task.createdAt);
      assert.ok(Math.abs(task.ttl - (lasted + 60_000)) < 100, 'from its end on for the minute that was asked for');
      assert.deepEqual(await getResult(client, created.taskId), related(plain, created.taskId));
      assert.deepEqual(
        await getResult(client, created.taskId),
        related(plain, created.taskId),
        'the result can be collected again',
      );
    });

    test('the stream of the SDK leads from the call to its result, without a ttl', async (t) => {
      const client = await connect(t, gate.url);
      // Since the tool takes tasks, the SDK asks for one by itself with `task: {}`.
      await client.listTools();
      const messages = await collect(
        client.experimental.tasks.callToolStream({ name: 'slow', arguments: { ms: 30 } }),
      );

      const [created, ...rest] = messages;
      assert.equal(created.type, 'taskCreated');
      assertCreated(created.task);
      assert.ok(created.task.ttl >= HOUR, 'a task is kept at least as long as its call may run');
      const result = rest.pop();
      assert.equal(result.type, 'result');
      assert.deepEqual(
        result.result,
        related({ content: [{ type: 'text', text: 'slept for 30 ms' }] }, created.task.taskId),
      );
      assert.ok(rest.length >= 1);
      for (const { type, task } of rest) {
        assert.equal(type, 'taskStatus');
        assert.equal(task.taskId, created.task.taskId);
      }
      assert.equal(rest.at(-1).task.status, 'completed');
    });

    test('tasks/result waits for the end, for every client that asks', async (t) => {
      const client = await connect(t, gate.url);
      const { taskId } = await createTask(client, 'slow', { ms: 200 });
      const results = await Promise.all([1, 2, 3].map(() => getResult(client, taskId)));
      const expected = related({ content: [{ type: 'text', text: 'slept for 200 ms' }] }, taskId);
      for (const result of results) assert.deepEqual(result, expected);
    });

    test('tasks/list shows the tasks of the session, and of no other', async (t) => {
      const client = await connect(t, gate.url);
      const other = await connect(t, gate.url);
      const created = [];
      for (const text of ['a', 'b', 'c']) created.push(await createTask(client, 'echo', { text }));
      const expected = [];
      for (const { taskId } of created) expected.push(await ended(client, taskId));

      const byId = (a, b) => (a.taskId < b.taskId ? -1 : 1);
      const listed = await listAll(client);
      assert.deepEqual(listed.sort(byId), expected.sort(byId));
      assert.deepEqual(await listAll(other), []);
    });

    test('the task of another session looks like an unknown one', async (t) => {
      const client = await connect(t, gate.url);
      const other = await connect(t, gate.url);
      const { taskId } = await createTask(client, 'echo', { text: 'mine' });
      await ended(client, taskId);

      const unknown = 'd0'.repeat(16);
      const { tasks } = other.experimental;
      const asks = [(id) => tasks.getTask(id), (id) => getResult(other, id), (id) => tasks.cancelTask(id)];
      for (const ask of asks) {
        const foreign = await outcome(ask(taskId));
        const never = await outcome(ask(unknown));
        assert.equal(foreign.error?.code, INVALID_PARAMS);
        assert.equal(never.error?.code, INVALID_PARAMS);
        assert.equal(
          foreign.error.message.replaceAll(taskId, ''),
          never.error.message.replaceAll(unknown, ''),
        );
      }
      assert.equal((await ended(client, taskId)).status, 'completed');
    });

    test('a cancelled task stays cancelled, and its call is aborted', async (t) => {
      const client = await connect(t, gate.url);
      const seen = await counters(client);
      const { taskId } = await createTask(client, 'hang');
      await oneMore(client, seen, 'hang.started');

      const waiter = outcome(getResult(client, taskId));
      const cancelled = await client.experimental.tasks.cancelTask(taskId);
      assert.equal(cancelled.taskId, taskId);
      assert.equal(cancelled.status, 'cancelled');
      assert.notEqual((await waiter).error, undefined, 'whoever waits for the result is told');
      await oneMore(client, seen, 'hang.aborted');
      await oneMore(client, seen, 'cancelled');

      assert.equal((await client.experimental.tasks.getTask(taskId)).status, 'cancelled');
      const again = await outcome(client.experimental.tasks.cancelTask(taskId));
      assert.equal(again.error?.code, INVALID_PARAMS);
    });

    test('a result with isError makes a failed task that says why', async (t) => {
      const args = { text: 'the disk is full' };
      const plain = await call(await connect(t, server.url), 'fail', args);
      assert.equal(plain.isError, true);

      const client = await connect(t, gate.url);
      const { taskId } = await createTask(client, 'fail', args);
      const task = await ended(client, taskId);
      assert.equal(task.status, 'failed');
      assert.match(task.statusMessage, /the disk is full/);
      assert.deepEqual(await getResult(client, taskId), related(plain, taskId));
    });

    test('a JSON-RPC error makes a failed task that says why', async (t) => {
      const args = { text: 'the disk is gone' };
      const plain = await outcome(call(await connect(t, server.url), 'throw', args));
      assert.equal(plain.error.code, -32050);
      assert.deepEqual(plain.error.data, { reason: 'the disk is gone' });

      const client = await connect(t, gate.url);
      const { taskId } = await createTask(client, 'throw', args);
      const task = await ended(client, taskId);
      assert.equal(task.status, 'failed');
      assert.match(task.statusMessage, /the disk is gone/);
      assert.deepEqual(await outcome(getResult(client, taskId)), plain);
    });

    if (asks) {
      test('what the server asks within a task names the task', async (t) => {
        const client = await connect(t, gate.url, answering);
        const asked = answerQuestions(client, { name: 'Ada' });
        await counters(client, 'streams', 1);
        const { taskId } = await createTask(client, 'ask', { question: 'Who is there?' });
        assert.deepEqual(
          await getResult(client, taskId),
          related({ content: [{ type: 'text', text: 'accept: Ada' }] }, taskId),
        );
        assert.equal(asked.length, 1);
        assert.equal(asked[0].message, 'Who is there?');
        assert.deepEqual(asked[0]._meta, related({}, taskId)._meta);
      });
    }

    test('giving up on tasks/result leaves the task alone', async (t) => {
      const client = await connect(t, gate.url);
      const { taskId } = await createTask(client, 'hang');
      // The SDK also sends notifications/cancelled, for its own request.
      const gaveUp = await outcome(getResult(client, taskId, { timeout: 50 }));
      assert.equal(gaveUp.error?.code, REQUEST_TIMEOUT);
      assert.equal((await client.experimental.tasks.getTask(taskId)).status, 'working');
      await client.experimental.tasks.cancelTask(taskId);
    });

    test('a client that lost its connection collects its task in the same session', async (t) => {
      const client = await connect(t, gate.url);
      const { sessionId } = client.transport;
      const { taskId } = await createTask(client, 'slow', { ms: 100 });
      await client.close();

      const resumed = await connect(t, gate.url, { sessionId });
      assert.deepEqual(
        await getResult(resumed, taskId),
        related({ content: [{ type: 'text', text: 'slept for 100 ms' }] }, taskId),
      );
    });

    test('the end of the session ends its tasks', async (t) => {
      const observer = await connect(t, gate.url);
      const seen = await counters(observer);
      const client = await connect(t, gate.url);
      await createTask(client, 'hang');
      await oneMore(observer, seen, 'hang.started');
      await client.transport.terminateSession();
      await oneMore(observer, seen, 'hang.aborted');
    });
  });
}
