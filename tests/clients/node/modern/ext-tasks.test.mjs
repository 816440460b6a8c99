// The ext-tasks client in its form for 2026-07-28: it polls, answers questions with tasks/update, and checks
// every shape.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
  resultFromTaskOutcome,
} from '@modelcontextprotocol/ext-tasks/client';
import { Inbox } from '../talking.mjs';
import { answers, ANSWERS_ALL, connect, inFrontOfLegacyServer, MODERN } from './kit.mjs';
import { REVISION, Wire } from './wire.mjs';

const house = inFrontOfLegacyServer();

/** A task session of its own, and the inbox of what it is asked; it ends with the test. */
async function openSession(t, mode, url = house.gate.url) {
  const { client } = await connect(t, url, { mode });
  assert.equal(client.getProtocolEra(), 'modern');
  const asked = new Inbox();
  const answer = (method) => (request, context) => {
    asked.push({ request, context });
    return answers[method](request.params ?? {});
  };
  // The SDK's client refuses results that are tasks, so the session sends its calls itself.
  const wire = new Wire(url, { capabilities: ANSWERS_ALL });
  const session = createTaskSessionFromClient(client, {
    endpointId: 'test',
    rawDispatch: async ({ method, params }, { signal, context } = {}) => {
      const { result, error } = await wire.exchange(method, params, { signal, headers: context?.headers });
      return error === undefined ? { kind: 'result', result } : { kind: 'error', error };
    },
    v2RequestFraming: {
      protocolVersion: REVISION,
      clientInfo: { name: 'ext-tasks-test', version: '1.0.0' },
      clientCapabilities: ANSWERS_ALL,
    },
    onInputRequest: createApplicationInputHandler({
      elicitation: answer('elicitation/create'),
      sampling: answer('sampling/createMessage'),
      roots: answer('roots/list'),
    }),
    onError: (error) => assert.fail(error),
  });
  t.after(() => session.close());
  return { session, asked };
}

const said = (outcome) => resultFromTaskOutcome(outcome).content[0].text;

for (const [how, mode] of [
  ['pinned', MODERN],
  ['by discovery', 'auto'],
]) {
  describe(`ext-tasks, ${how}`, () => {
    test('a fast call is answered at once', async (t) => {
      const { session } = await openSession(t, mode);
      const execution = await session.callTool('greet', { name: 'Ada' });
      assert.equal(execution.kind, 'immediate');
      assert.equal(said((await execution.settle()).outcome), 'Hello, Ada!');
    });

    test('a slow call becomes a task, whose end it sees', async (t) => {
      const { session } = await openSession(t, mode);
      const execution = await session.callTool('slow_compute', { seconds: 2, label: t.fullName });
      assert.equal(execution.kind, 'task');
      const states = [];
      const { outcome } = await execution.settle({ onEvent: ({ task }) => states.push(task?.status) });
      assert.equal(said(outcome), `computed ${t.fullName} for 2 s`);
      assert.equal(states[0], 'working');
    });

    test('questions of a task are answered, several at once as well', async (t) => {
      const { session, asked } = await openSession(t, mode);
      const one = await session.callTool('confirm_delete', { filename: 'a.txt' });
      const two = await session.callTool('multi_input', {});
      assert.equal(said((await one.settle()).outcome), 'deleted a.txt');
      assert.equal(said((await two.settle()).outcome), 'Ada, true');
      assert.equal(asked.items.length, 3);
      for (const { context } of asked.items) {
        assert.equal(context.scope, 'task');
        assert.equal(context.delivery, 'task-update');
        assert.ok([one, two].some(({ handle }) => handle.taskId === context.taskId));
      }
    });

    test('questions before there is a task are answered by a retry, which becomes one', async (t) => {
      const { session, asked } = await openSession(t, mode);
      const execution = await session.callTool('test_tool_with_task', {});
      assert.equal(execution.kind, 'task');
      assert.equal(said((await execution.settle()).outcome), 'Hello, Ada!');
      assert.deepEqual(
        asked.items.map(({ context }) => context.delivery),
        ['request-retry'],
      );
    });

    test('sampling and roots are asked for as well', async (t) => {
      const { session, asked } = await openSession(t, mode);
      const execution = await session.callTool('test_input_required_result_multiple_inputs', {});
      assert.equal(said((await execution.settle()).outcome), 'Hello, Ada! an answer file:///home/ada');
      assert.equal(new Set(asked.items.map(({ request }) => request.kind)).size, 3);
      assert.equal(asked.items.length, 3);
    });

    test('a tool that fails has a result, an error of the protocol has none', async (t) => {
      const { session } = await openSession(t, mode);
      const failing = await session.callTool('failing_job', {});
      const { outcome } = await failing.settle();
      assert.equal(outcome.status, 'completed');
      assert.equal(outcome.result.isError, true);
      const erring = await session.callTool('protocol_error_job', {});
      const failed = (await erring.settle()).outcome;
      assert.equal(failed.status, 'failed');
      assert.equal(failed.error.code, 4050);
    });

    test('a task is cancelled', async (t) => {
      const { session } = await openSession(t, mode);
      const execution = await session.callTool('slow_compute', { seconds: 60, label: t.fullName });
      const settled = execution.settle();
      await execution.cancel();
      assert.equal((await settled).outcome.status, 'cancelled');
      const told = await session.callTool('wait_until', { label: t.fullName, what: 'aborted' });
      assert.equal(said((await told.settle()).outcome), `${t.fullName} aborted`);
    });

    test('another session takes up a task by its reference', async (t) => {
      const { session } = await openSession(t, mode);
      const execution = await session.callTool('slow_compute', { seconds: 2, label: t.fullName });
      const reference = execution.serializeReference();
      await execution.detach();
      const { session: later } = await openSession(t, mode);
      const resumed = await later.resumeTask(JSON.parse(JSON.stringify(reference)));
      assert.equal(said((await resumed.settle()).outcome), `computed ${t.fullName} for 2 s`);
    });
  });
}
