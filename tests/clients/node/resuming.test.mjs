// A connection that is cut in mid-stream: the SDK's client resumes the stream by itself, and nothing
// is lost, delivered twice or run twice.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { call, createTask, getResult, related } from './calls.mjs';
import { connect } from './kit.mjs';
import { startProxy } from './proxy.mjs';
import {
  advance,
  answerAll,
  ANSWERED,
  ANSWERS_ALL,
  Inbox,
  inFrontOfTalkingServer,
  statesOf,
  statuses,
} from './talking.mjs';

const house = inFrontOfTalkingServer();

const ONCE = { content: [{ type: 'text', text: 'started 1 times' }] };
// A whole event with an id.
const AN_EVENT = /^id:.*\r?\n(.*\r?\n)*?\r?\n/m;

async function connectByProxy(t, options) {
  const proxy = await startProxy(house.gate.url);
  const client = await connect(t, proxy.url, options);
  // After the end of the client's session, which needs the proxy.
  t.after(proxy.stop);
  return { proxy, client };
}

test('tasks/result is answered over the stream that resumes it', async (t) => {
  const { proxy, client } = await connectByProxy(t);
  const other = await connect(t, house.gate.url);
  const { taskId } = await createTask(client, 'paced', { key: t.fullName, steps: 0 });
  const result = getResult(client, taskId);
  await proxy.cut(/"tasks\/result"/, AN_EVENT);
  await advance(other, t.fullName);
  assert.deepEqual(await result, related(ONCE, taskId));
});

test('a plain call is answered over the stream that resumes it, and runs once', async (t) => {
  const { proxy, client } = await connectByProxy(t);
  const other = await connect(t, house.gate.url);
  const key = t.fullName;
  const reports = new Inbox();
  const result = call(client, 'paced', { key, steps: 2 }, { onprogress: reports.push });
  await advance(other, key);
  await reports.reach(1);
  await proxy.cut(/"paced"/, /step 1/);
  await advance(other, key, 2);
  assert.deepEqual(await result, ONCE);
  assert.deepEqual(
    reports.items.map(({ progress }) => progress),
    [1, 2],
  );
});

test('what happens while the GET stream is cut comes once, when it is resumed', async (t) => {
  const { proxy, client } = await connectByProxy(t);
  const other = await connect(t, house.gate.url);
  const told = statuses(client);
  const key = t.fullName;
  const first = await createTask(client, 'paced', { key, steps: 0 });
  const second = await createTask(client, 'paced', { key: `${key}, second`, steps: 0 });
  await proxy.cut(/^GET /, AN_EVENT);
  await advance(other, key);
  await other.ping();
  await advance(other, `${key}, second`);
  for (const { taskId } of [first, second]) {
    await told.until((items) => statesOf(items, taskId).at(-1) === 'completed');
    const ends = told.items.filter((task) => task.taskId === taskId && task.status === 'completed');
    assert.equal(ends.length, 1);
  }
});

test('a question that comes while the stream is cut is asked when it is resumed', async (t) => {
  const { proxy, client } = await connectByProxy(t, { capabilities: ANSWERS_ALL });
  const asked = answerAll(client);
  // The call runs as long as the question is open, so only the resumed stream can carry it.
  await proxy.cut(/^GET /, AN_EVENT);
  const { taskId } = await createTask(client, 'ask', { kinds: ['form'] });
  const expected = { content: [{ type: 'text', text: ANSWERED.form }] };
  await asked.reach(1);
  assert.deepEqual(await getResult(client, taskId), related(expected, taskId));
  assert.equal(asked.items.length, 1);
});

for (const [stream, request, listen] of [
  ['tasks/result', /"tasks\/result"/, false],
  ['the GET stream', /^GET /, true],
]) {
  test(`a question that was asked over ${stream} before the cut is answered after it`, async (t) => {
    const { proxy, client } = await connectByProxy(t, { capabilities: ANSWERS_ALL, listen });
    let asked = 0;
    client.setRequestHandler(ElicitRequestSchema, async () => {
      asked += 1;
      if (asked === 1) await proxy.cut(request, /Who is there/);
      return { action: 'accept', content: { name: 'Ada' } };
    });
    const { taskId } = await createTask(client, 'ask', { kinds: ['form'] });
    const expected = { content: [{ type: 'text', text: ANSWERED.form }] };
    assert.deepEqual(await getResult(client, taskId), related(expected, taskId));
    // A stream that opens before the cut one is resumed may carry it once more.
    assert.ok(asked <= 2, `asked ${asked} times`);
  });
}
