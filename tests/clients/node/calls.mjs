// Helpers that call tools with an SDK client, and compare outcomes.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  CallToolResultSchema,
  CreateTaskResultSchema,
  ElicitRequestSchema,
  CreateMessageRequestSchema,
  RELATED_TASK_META_KEY,
} from '@modelcontextprotocol/sdk/types.js';

export const TASKS_CAPABILITY = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
export const INVALID_PARAMS = -32602;
export const REQUEST_TIMEOUT = -32001;

const ANSWERS = { elicitation: { form: {} }, sampling: {} };

/** Options for a client that answers elicitation and sampling by `answerQuestions`. */
export const answering = { capabilities: ANSWERS };

/** Makes the client answer what servers ask; gives the list that the requests' params go to. */
export function answerQuestions(client, content) {
  const asked = [];
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params);
    return { action: 'accept', content };
  });
  client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
    asked.push(params);
    return { role: 'assistant', model: 'test-model', content: { type: 'text', text: 'an answer' } };
  });
  return asked;
}

/** A plain call. */
export const call = (client, name, args, options) =>
  client.callTool({ name, arguments: args }, CallToolResultSchema, options);

/** What a call came to: its result, or its JSON-RPC error. */
export const outcome = (promise) =>
  promise.then(
    (result) => ({ result }),
    ({ code, message, data }) => ({ error: { code, message, data } }),
  );

/** Calls a tool as a task; gives the task as it was created. */
export async function createTask(client, name, args, { task = { ttl: 60_000 }, ...options } = {}) {
  const request = { method: 'tools/call', params: { name, arguments: args } };
  const created = await client.request(request, CreateTaskResultSchema, { task, ...options });
  return created.task;
}

export const getResult = (client, taskId, options) =>
  client.experimental.tasks.getTaskResult(taskId, CallToolResultSchema, options);

/** Polls as the server asks to, until the task has ended. */
export async function ended(client, taskId) {
  for (;;) {
    const task = await client.experimental.tasks.getTask(taskId);
    if (['completed', 'failed', 'cancelled'].includes(task.status)) return task;
    assert.equal(task.status, 'working');
    await sleep(task.pollInterval);
  }
}

/** All pages of tasks/list. */
export async function listAll(client) {
  const tasks = [];
  let cursor;
  do {
    const page = await client.experimental.tasks.listTasks(cursor);
    tasks.push(...page.tasks);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return tasks;
}

/** All messages of a call by the SDK's stream. */
export async function collect(stream) {
  const messages = [];
  for await (const message of stream) messages.push(message);
  return messages;
}

/** The result as tasks/result has to give it. */
export const related = (result, taskId) => ({
  ...result,
  _meta: { ...result._meta, [RELATED_TASK_META_KEY]: { taskId } },
});

export function assertCreated(task) {
  assert.equal(task.status, 'working');
  assert.equal(typeof task.taskId, 'string');
  assert.ok(task.taskId.length >= 16, `the id ${task.taskId} is short enough to be guessed`);
  assert.ok(Number.isInteger(task.ttl), `ttl ${task.ttl}`);
  assert.ok(Number.isInteger(task.pollInterval), `pollInterval ${task.pollInterval}`);
  for (const time of [task.createdAt, task.lastUpdatedAt]) {
    assert.match(time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
  }
}

/** The counters of plain-server.mjs, once the named one has reached a number. */
export async function counters(client, counter, atLeast) {
  const { structuredContent } = await call(client, 'stats', { counter, atLeast });
  return structuredContent;
}

/** Waits until the server has seen `counter` once more than in `before`. */
export const oneMore = (client, before, counter) => counters(client, counter, (before[counter] ?? 0) + 1);
