// taskgate is killed and started again, and the SDK client goes on with the tasks that it has.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { call, createTask, ended, getResult } from './calls.mjs';
import { connect, startLastingTaskgate, startServer } from './kit.mjs';

let server;
let gate;
before(async () => {
  server = await startServer('plain-server.mjs', '--resumable');
  gate = await startLastingTaskgate(`
    [tasks]
    poll_interval = "20ms"
    [[upstream]]
    url = ${JSON.stringify(server.url)}
    [upstream.tools.slow]
    max_running = 1
  `);
});
after(async () => {
  assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly');
  await server?.stop();
});

const text = (result) => result.content[0].text;
const runs = async (client) => (await call(client, 'stats')).structuredContent['slow.started'] ?? 0;

test('a client gets the results of tasks that had ended, ran and waited when taskgate was killed', async (t) => {
  const client = await connect(t, gate.url);
  const done = await createTask(client, 'echo', { text: 'before' });
  await ended(client, done.taskId);
  const before = await runs(client);
  const running = await createTask(client, 'slow', { ms: 5000, steps: 50 });
  const waiting = await createTask(client, 'slow', { ms: 100 });
  // A notification of progress has an event id, which is written with the next batch.
  while (!(await client.experimental.tasks.getTask(running.taskId)).statusMessage) continue;
  await ended(client, (await createTask(client, 'echo', { text: 'written' })).taskId);

  await gate.restart();
  assert.equal(text(await getResult(client, done.taskId)), 'before');
  assert.equal((await client.experimental.tasks.getTask(running.taskId)).status, 'working');
  assert.equal((await ended(client, running.taskId)).status, 'completed');
  assert.equal(text(await getResult(client, running.taskId)), 'slept for 5000 ms');
  assert.equal((await ended(client, waiting.taskId)).status, 'completed');
  assert.equal(text(await getResult(client, waiting.taskId)), 'slept for 100 ms');
  assert.equal((await runs(client)) - before, 2, 'each ran once');
  assert.equal(text(await call(client, 'echo', { text: 'plain' })), 'plain', 'plain calls go on too');
});
