// What a client hears of a running task: progress after the creation, status notifications, log messages.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createTask, getResult, related } from './calls.mjs';
import { connect } from './kit.mjs';
import { advance, Inbox, inFrontOfTalkingServer, logs, statesOf, statuses } from './talking.mjs';

const house = inFrontOfTalkingServer();

const STEPS = 3;
const report = (step, taskId) =>
  related({ progress: step, total: STEPS, message: `step ${step}` }, taskId);

for (const [stream, listen] of [
  ['an open tasks/result', false],
  ['the GET stream', true],
]) {
  describe(`over ${stream}`, () => {
    test("progress reaches the SDK's onprogress after the creation, in order and not after the end", async (t) => {
      const client = await connect(t, house.gate.url, { listen });
      const other = await connect(t, house.gate.url);
      const key = t.fullName;
      const reports = new Inbox();
      const { taskId } = await createTask(client, 'paced', { key, steps: STEPS }, { onprogress: reports.push });

      const opened = new Inbox();
      const result = getResult(client, taskId, { onresumptiontoken: opened.push });
      // The stream has begun as soon as there is a token to resume it with.
      await opened.reach(1);
      for (let step = 1; step <= STEPS; step++) {
        await advance(other, key);
        assert.deepEqual((await reports.reach(step)).at(-1), report(step, taskId));
        const { statusMessage } = await client.experimental.tasks.getTask(taskId);
        assert.equal(statusMessage, `${step} of ${STEPS}: step ${step}`);
      }
      await advance(other, key);
      assert.deepEqual(
        await result,
        related({ content: [{ type: 'text', text: 'started 1 times' }] }, taskId),
      );
      await client.ping();
      assert.equal(reports.items.length, STEPS);
    });
  });
}

test('a client that only polls sees the progress as well, without having asked for it', async (t) => {
  const client = await connect(t, house.gate.url, { listen: false });
  const key = t.fullName;
  const created = await createTask(client, 'paced', { key, steps: 1 });
  await advance(client, key);
  let task = created;
  while (task.statusMessage !== '1 of 1: step 1') {
    task = await client.experimental.tasks.getTask(created.taskId);
    assert.equal(task.status, 'working');
  }
  assert.ok(task.lastUpdatedAt >= created.lastUpdatedAt);
  await advance(client, key);
  await getResult(client, created.taskId);
});

test('each change of state comes with the whole task, without related-task metadata', async (t) => {
  const client = await connect(t, house.gate.url);
  const told = statuses(client);
  const key = t.fullName;
  const created = await createTask(client, 'paced', { key, steps: 0 });
  const cancelled = await createTask(client, 'paced', { key: `${key}, cancelled`, steps: 0 });
  await client.experimental.tasks.cancelTask(cancelled.taskId);
  await told.until((items) => statesOf(items, cancelled.taskId).at(-1) === 'cancelled');
  await advance(client, key);
  await told.until((items) => statesOf(items, created.taskId).at(-1) === 'completed');

  for (const { taskId } of [created, cancelled]) {
    const last = told.items.findLast((task) => task.taskId === taskId);
    assert.deepEqual(last, await client.experimental.tasks.getTask(taskId));
    assert.equal(told.items.filter(({ status }) => status === last.status).length, 1, 'the end is told once');
  }
});

test('what the server logs in a task names the task', async (t) => {
  const client = await connect(t, house.gate.url);
  const logged = logs(client);
  const key = t.fullName;
  const { taskId } = await createTask(client, 'paced', { key, steps: 0 });
  const [message] = await logged.reach(1);
  assert.deepEqual(message, { level: 'info', data: key, _meta: related({}, taskId)._meta });
  await advance(client, key);
  await getResult(client, taskId);
});
