// Connects clients of the TypeScript SDK 2.x, and sets up what they talk to.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { startServer, startTaskgateWith } from '../kit.mjs';
import { Inbox } from '../talking.mjs';
import { taskToolsConfig } from './task-tools.mjs';

export const MODERN = { pin: '2026-07-28' };
export const TASKS = 'io.modelcontextprotocol/tasks';
export const ANSWERS_ALL = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** The legacy server and taskgate in front of it, for all tests of a file: { server, gate }. */
export function inFrontOfLegacyServer() {
  const house = {};
  before(async () => {
    house.server = await startServer('modern/legacy-server.mjs');
    house.gate = await startTaskgateWith(taskToolsConfig(`url = ${JSON.stringify(house.server.url)}`));
  });
  after(async () => {
    const code = await house.gate?.stop();
    await house.server?.stop();
    assert.equal(code, 0, 'taskgate ends cleanly');
  });
  return house;
}

/** A client of the SDK that ends with the test; `asked` is the inbox of what it was asked. */
export async function connect(t, transport, { mode = MODERN, capabilities = ANSWERS_ALL, ...options } = {}) {
  const info = { name: 'taskgate-test', version: '1.0.0' };
  const client = new Client(info, { capabilities, versionNegotiation: { mode }, ...options });
  const asked = answerAll(client, capabilities);
  await client.connect(typeof transport === 'string' ? http(transport) : transport);
  t.after(() => client.close());
  return { client, asked };
}

export const http = (url, options) => new StreamableHTTPClientTransport(new URL(url), options);

/** What the client gives for each kind of question: every field of a form is `Ada`, or `true`. */
export const answers = {
  'elicitation/create': ({ requestedSchema }) => ({
    action: 'accept',
    ...(requestedSchema && { content: filledIn(requestedSchema) }),
  }),
  'sampling/createMessage': () => ({
    role: 'assistant',
    model: 'test-model',
    content: { type: 'text', text: 'an answer' },
  }),
  'roots/list': () => ({ roots: [{ uri: 'file:///home/ada' }] }),
};

const filledIn = ({ properties }) =>
  Object.fromEntries(
    Object.entries(properties).map(([name, { type }]) => [name, type === 'boolean' ? true : 'Ada']),
  );

const CAPABILITY = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
};

function answerAll(client, capabilities) {
  const asked = new Inbox();
  for (const [method, answer] of Object.entries(answers)) {
    if (capabilities[CAPABILITY[method]] === undefined) continue;
    client.setRequestHandler(method, ({ params }) => {
      asked.push({ method, params });
      return answer(params ?? {});
    });
  }
  return asked;
}

export const call = (client, name, args = {}, options) => client.callTool({ name, arguments: args }, options);

/** The text of a result that is one text. */
export function text({ content }) {
  assert.equal(content.length, 1);
  return content[0].text;
}
