// A server's questions during a task reach the SDK's client, and its answers the server.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { call, collect, createTask, ended, getResult, related } from './calls.mjs';
import { connect } from './kit.mjs';
import {
  answerAll,
  ANSWERED,
  ANSWERS_ALL,
  inFrontOfTalkingServer,
  statesOf,
  statuses,
} from './talking.mjs';

const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
const answersTo = (kinds) => ({
  content: [{ type: 'text', text: kinds.map((kind) => ANSWERED[kind]).join(', ') }],
});

const house = inFrontOfTalkingServer();

/** Polls until the task waits for input. */
async function inputRequired(client, taskId) {
  for (;;) {
    const task = await client.experimental.tasks.getTask(taskId);
    if (task.status === 'input_required') return task;
    assert.equal(task.status, 'working');
    await sleep(task.pollInterval);
  }
}

for (const [stream, listen] of [
  ['tasks/result', false],
  ['the GET stream', true],
]) {
  describe(`questions over ${stream}`, () => {
    for (const kind of Object.keys(ANSWERED)) {
      test(`${kind}: asked once, with the task's id, and answered`, async (t) => {
        const client = await connect(t, house.gate.url, { capabilities: ANSWERS_ALL, listen });
        const asked = answerAll(client);
        const { taskId } = await createTask(client, 'ask', { kinds: [kind] });
        assert.deepEqual(await getResult(client, taskId), related(answersTo([kind]), taskId));
        assert.equal((await ended(client, taskId)).status, 'completed');
        assert.equal(asked.items.length, 1);
        assert.deepEqual(asked.items[0].params._meta, related({}, taskId)._meta);
      });
    }

    test('several questions at once are each answered', async (t) => {
      const client = await connect(t, house.gate.url, { capabilities: ANSWERS_ALL, listen });
      const asked = answerAll(client);
      const kinds = ['form', 'sampling', 'roots', 'url', 'form'];
      const { taskId } = await createTask(client, 'ask', { kinds });
      assert.deepEqual(await getResult(client, taskId), related(answersTo(kinds), taskId));
      assert.equal(asked.items.length, kinds.length);
    });

    test("the SDK's stream leads from the call through the question to the result", async (t) => {
      const client = await connect(t, house.gate.url, { capabilities: ANSWERS_ALL, listen });
      const asked = answerAll(client);
      await client.listTools();
      const messages = await collect(
        client.experimental.tasks.callToolStream({ name: 'ask', arguments: { kinds: ['form', 'sampling'] } }),
      );
      const [{ type, task }] = messages;
      assert.equal(type, 'taskCreated');
      assert.equal(task.status, 'working');
      assert.deepEqual(messages.at(-1), {
        type: 'result',
        result: related(answersTo(['form', 'sampling']), task.taskId),
      });
      assert.equal(asked.items.length, 2);
    });

    test('a failure of the client to answer reaches the server', async (t) => {
      const client = await connect(t, house.gate.url, { capabilities: ANSWERS_ALL, listen });
      // Without handlers the SDK refuses what it declared.
      const { taskId } = await createTask(client, 'ask', { kinds: ['form', 'roots'] });
      const refused = `error ${METHOD_NOT_FOUND}`;
      const expected = { content: [{ type: 'text', text: `${refused}, ${refused}` }] };
      assert.deepEqual(await getResult(client, taskId), related(expected, taskId));
    });
  });
}

test('without a GET stream the task waits for input until tasks/result is asked for', async (t) => {
  const client = await connect(t, house.gate.url, { capabilities: ANSWERS_ALL, listen: false });
  const asked = answerAll(client);
  const { taskId } = await createTask(client, 'ask', { kinds: ['form'] });
  await inputRequired(client, taskId);
  assert.equal(asked.items.length, 0);
  assert.deepEqual(await getResult(client, taskId), related(answersTo(['form']), taskId));
  assert.equal((await client.experimental.tasks.getTask(taskId)).status, 'completed');
});

test('a tasks/result that already waits carries the question', async (t) => {
  const client = await connect(t, house.gate.url, { capabilities: ANSWERS_ALL, listen: false });
  const asked = answerAll(client);
  const { taskId } = await createTask(client, 'ask', { kinds: ['sampling'] });
  const results = await Promise.all([getResult(client, taskId), getResult(client, taskId)]);
  for (const result of results) assert.deepEqual(result, related(answersTo(['sampling']), taskId));
  assert.equal(asked.items.length, 1, 'it is asked on one of two streams');
});

test('the task goes from working through input_required and working to its end', async (t) => {
  const client = await connect(t, house.gate.url, { capabilities: ANSWERS_ALL });
  answerAll(client);
  const told = statuses(client);
  const { taskId } = await createTask(client, 'ask', { kinds: ['form'] });
  const items = await told.until((items) => statesOf(items, taskId).at(-1) === 'completed');
  // The state at the creation may come a second time.
  const states = statesOf(items, taskId);
  if (states[0] === 'working') states.shift();
  assert.deepEqual(states, ['input_required', 'working', 'completed']);
});

test('a question that the client cannot answer is refused with the code of the client itself', async (t) => {
  const missing = METHOD_NOT_FOUND;
  for (const [capabilities, codes] of [
    [{}, { form: missing, url: missing, sampling: missing, roots: missing }],
    [{ elicitation: { form: {} } }, { form: undefined, url: INVALID_PARAMS, sampling: missing }],
    [{ elicitation: { url: {} } }, { form: INVALID_PARAMS, url: undefined, roots: missing }],
  ]) {
    const kinds = Object.keys(codes);
    const answers = kinds.map((kind) => (codes[kind] ? `error ${codes[kind]}` : ANSWERED[kind]));
    const expected = { content: [{ type: 'text', text: answers.join(', ') }] };

    const direct = await connect(t, house.server.url, { capabilities });
    answerAll(direct, capabilities);
    assert.deepEqual(await call(direct, 'ask', { kinds }), expected);

    const client = await connect(t, house.gate.url, { capabilities });
    const asked = answerAll(client, capabilities);
    const { taskId } = await createTask(client, 'ask', { kinds });
    assert.deepEqual(await getResult(client, taskId), related(expected, taskId));
    assert.equal(asked.items.length, capabilities.elicitation ? 1 : 0, 'the client is asked nothing else');
  }
});
