// Helpers that call talking-server.mjs, and wait for what it sends.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  TaskStatusNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { call } from './calls.mjs';
import { startServer, startTaskgateWith } from './kit.mjs';

const ROOT = 'file:///home/ada';

/** What a client declares that answers every kind of question. */
export const ANSWERS_ALL = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** What `ask` gives when all is answered by `answerAll`. */
export const ANSWERED = {
  form: 'accept: Ada',
  url: 'accept',
  sampling: 'test-model: an answer',
  roots: ROOT,
};

/** A list that can be waited on. */
export class Inbox {
  items = [];
  #waiting = [];

  push = (item) => {
    this.items.push(item);
    for (const look of this.#waiting) look();
  };

  /** All items, once there are `count`. */
  reach(count) {
    return this.until((items) => items.length >= count);
  }

  /** All items, once `found` holds for them. */
  until(found) {
    return new Promise((resolve) => {
      const look = () => found(this.items) && resolve(this.items);
      this.#waiting.push(look);
      look();
    });
  }
}

/** Makes the client answer whatever it declared; gives the inbox of the requests. */
export function answerAll(client, capabilities = ANSWERS_ALL) {
  const asked = new Inbox();
  const answer = (schema, result) =>
    client.setRequestHandler(schema, (request) => {
      asked.push(request);
      return result(request);
    });
  const { elicitation, sampling, roots } = capabilities;
  if (elicitation) {
    answer(ElicitRequestSchema, ({ params }) =>
      params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: 'Ada' } },
    );
  }
  if (sampling) {
    const content = { type: 'text', text: 'an answer' };
    answer(CreateMessageRequestSchema, () => ({ role: 'assistant', model: 'test-model', content }));
  }
  if (roots) answer(ListRootsRequestSchema, () => ({ roots: [{ uri: ROOT }] }));
  return asked;
}

const inboxOf = (client, schema) => {
  const inbox = new Inbox();
  client.setNotificationHandler(schema, ({ params }) => inbox.push(params));
  return inbox;
};

/** The inbox of the client's status notifications. */
export const statuses = (client) => inboxOf(client, TaskStatusNotificationSchema);

/** The inbox of the client's log messages. */
export const logs = (client) => inboxOf(client, LoggingMessageNotificationSchema);

/** The states that the notifications about a task told, each once in a row. */
export const statesOf = (items, taskId) =>
  items
    .filter((task) => task.taskId === taskId)
    .map(({ status }) => status)
    .filter((status, at, all) => status !== all[at - 1]);

/** Lets the calls of `paced` with this key go on by so many steps. */
export const advance = (client, key, by = 1) => call(client, 'advance', { key, by });

/** The server that talks, and taskgate in front of it, for all tests of a file: { server, gate }, there once they run. */
export function inFrontOfTalkingServer() {
  const house = {};
  before(async () => {
    house.server = await startServer('talking-server.mjs');
    house.gate = await startTaskgateWith(`
      [tasks]
      poll_interval = "20ms"
      [[upstream]]
      url = ${JSON.stringify(house.server.url)}
    `);
  });
  after(async () => {
    assert.equal(await house.gate?.stop(), 0, 'taskgate ends cleanly');
    await house.server?.stop();
  });
  return house;
}
