// `subscriptions/listen`, written by hand: tasks by their ids, list changes, and how a subscription ends.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inFrontOfLegacyServer } from './kit.mjs';
import { Wire } from './wire.mjs';

const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId';
const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';
const house = inFrontOfLegacyServer();

/** Opens a subscription; gives its acknowledgement, and the stream of what comes after it. */
async function listen(t, wire, notifications) {
  const left = new AbortController();
  t.after(() => left.abort());
  const stream = wire.stream('subscriptions/listen', { notifications }, { signal: left.signal });
  const { value: acknowledged } = await stream.next();
  assert.equal(acknowledged.method, ACKNOWLEDGED);
  const id = acknowledged.params._meta[SUBSCRIPTION_ID];
  assert.notEqual(id, undefined);
  async function* after() {
    for await (const message of stream) {
      const { _meta } = message.params ?? message.result;
      assert.equal(_meta[SUBSCRIPTION_ID], id);
      yield message;
    }
  }
  return { id, agreed: acknowledged.params.notifications, messages: after() };
}

const slow = (label, seconds = 2) => ({ name: 'slow_compute', arguments: { seconds, label } });

test('the states of a task are told, the last with its result; unknown ids are not agreed to', async (t) => {
  const wire = new Wire(house.gate.url);
  const { taskId } = await wire.request('tools/call', slow('told'));
  const { agreed, messages } = await listen(t, wire, { taskIds: [taskId, 'd0'.repeat(16)] });
  assert.deepEqual(agreed, { taskIds: [taskId] });
  for await (const { method, params } of messages) {
    assert.equal(method, 'notifications/tasks');
    assert.equal(params.taskId, taskId);
    if (params.status === 'working') continue;
    assert.equal(params.status, 'completed');
    const { _meta, ...told } = params;
    const { _meta: _, resultType, ...got } = await wire.request('tasks/get', { taskId });
    assert.deepEqual(told, got);
    return;
  }
  assert.fail('the stream ended before the task');
});

test('a question of a task is told with the task', async (t) => {
  const wire = new Wire(house.gate.url, {
    capabilities: { elicitation: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } },
  });
  const call = { name: 'confirm_delete', arguments: { filename: 'told.txt' } };
  const { taskId } = await wire.request('tools/call', call);
  const { messages } = await listen(t, wire, { taskIds: [taskId] });
  let task = await wire.request('tasks/get', { taskId });
  while (task.status === 'working') ({ params: task } = (await messages.next()).value);
  assert.equal(task.status, 'input_required');
  const inputResponses = Object.fromEntries(
    Object.keys(task.inputRequests).map((key) => [key, { action: 'accept', content: { confirm: true } }]),
  );
  await wire.request('tasks/update', { taskId, inputResponses });
  for await (const { params } of messages) if (params.status === 'completed') return;
  assert.fail('the stream ended before the task');
});

test('a subscription to tasks wants the extension', async () => {
  const wire = new Wire(house.gate.url, { capabilities: {} });
  const { error } = await wire.exchange('subscriptions/listen', {
    notifications: { taskIds: ['d0'.repeat(16)] },
  });
  assert.equal(error.code, -32021);
});

test('only the lists that were asked for are told of', async (t) => {
  const wire = new Wire(house.gate.url);
  const { agreed, messages } = await listen(t, wire, { toolsListChanged: true });
  assert.deepEqual(agreed, { toolsListChanged: true });
  await wire.request('tools/call', { name: 'test_trigger_prompt_change', arguments: {} });
  await wire.request('tools/call', { name: 'test_trigger_tool_change', arguments: {} });
  assert.equal((await messages.next()).value.method, 'notifications/tools/list_changed');
});

test('two subscriptions each tell their own', async (t) => {
  const [one, two] = [new Wire(house.gate.url), new Wire(house.gate.url)];
  const tools = await listen(t, one, { toolsListChanged: true });
  const prompts = await listen(t, two, { promptsListChanged: true });
  await one.request('tools/call', { name: 'test_trigger_tool_change', arguments: {} });
  await one.request('tools/call', { name: 'test_trigger_prompt_change', arguments: {} });
  assert.equal((await tools.messages.next()).value.method, 'notifications/tools/list_changed');
  assert.equal((await prompts.messages.next()).value.method, 'notifications/prompts/list_changed');
});

// The last test of the file: it ends taskgate.
test('when taskgate stops, a subscription is cancelled, and ends with a result', async (t) => {
  const { messages } = await listen(t, new Wire(house.gate.url), { toolsListChanged: true });
  const stopped = house.gate.stop();
  assert.equal((await messages.next()).value.method, 'notifications/cancelled');
  const { value } = await messages.next();
  assert.equal(value.result.resultType, 'complete');
  assert.equal((await messages.next()).done, true);
  assert.equal(await stopped, 0);
});
