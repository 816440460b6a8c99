// The ext-tasks client, in its form for revision 2025-11-25: it polls, keeps the GET stream open and
// collects the result only when the task has ended.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
  resultFromTaskOutcome,
  toolDeclarationFromMcpTool,
} from '@modelcontextprotocol/ext-tasks/client';
import { related } from './calls.mjs';
import { connect } from './kit.mjs';
import { advance, ANSWERED, ANSWERS_ALL, Inbox, inFrontOfTalkingServer } from './talking.mjs';

const house = inFrontOfTalkingServer();

/** A task session of its own, and the inbox of what it is asked; it ends with the test. */
async function openSession(t) {
  const client = new Client({ name: 'ext-tasks-test', version: '1.0.0' }, { capabilities: ANSWERS_ALL });
  const transport = new StreamableHTTPClientTransport(new URL(house.gate.url));
  await client.connect(transport);
  assert.equal(client.getProtocolEra(), 'legacy');
  const { tools } = await client.listTools();

  const asked = new Inbox();
  const answer = (result) => (request, context) => {
    asked.push({ request, context });
    return result;
  };
  const session = createTaskSessionFromClient(client, {
    endpointId: 'test',
    onInputRequest: createApplicationInputHandler({
      elicitation: answer({ action: 'accept', content: { name: 'Ada' } }),
      sampling: answer({ role: 'assistant', model: 'test-model', content: { type: 'text', text: 'an answer' } }),
      roots: answer({ roots: [{ uri: ANSWERED.roots }] }),
    }),
  });
  t.after(async () => {
    await session.close();
    await transport.terminateSession();
    await client.close();
  });
  const callAsTask = (name, args) => {
    const declaration = toolDeclarationFromMcpTool(tools.find((tool) => tool.name === name));
    return session.callTool(name, args, { declaration, task: { preference: 'require' } });
  };
  return { asked, callAsTask };
}

for (const kind of ['form', 'sampling', 'roots']) {
  test(`a question of the task (${kind}) is answered over the GET stream`, async (t) => {
    const { asked, callAsTask } = await openSession(t);
    const execution = await callAsTask('ask', { kinds: [kind] });
    assert.equal(execution.kind, 'task');
    const { taskId } = execution.handle;
    const { outcome } = await execution.settle();
    const expected = { content: [{ type: 'text', text: ANSWERED[kind] }] };
    assert.deepEqual(resultFromTaskOutcome(outcome), related(expected, taskId));
    assert.equal(asked.items.length, 1);
    assert.equal(asked.items[0].context.scope, 'task');
    assert.equal(asked.items[0].context.taskId, taskId);
  });
}

test('its execution sees the progress and the end of a task', async (t) => {
  const { callAsTask } = await openSession(t);
  const other = await connect(t, house.gate.url);
  const key = t.fullName;
  const execution = await callAsTask('paced', { key, steps: 1 });
  const seen = new Inbox();
  const settled = execution.settle({ onEvent: seen.push });
  await advance(other, key);
  await seen.until((events) => events.some(({ task }) => task?.statusMessage === '1 of 1: step 1'));
  await advance(other, key);
  const { outcome } = await settled;
  const expected = { content: [{ type: 'text', text: 'started 1 times' }] };
  assert.deepEqual(resultFromTaskOutcome(outcome), related(expected, execution.handle.taskId));
});

test('its execution is cancelled', async (t) => {
  const { callAsTask } = await openSession(t);
  const execution = await callAsTask('paced', { key: t.fullName, steps: 0 });
  const settled = execution.settle();
  await execution.cancel();
  assert.equal((await settled).outcome.status, 'cancelled');
});
