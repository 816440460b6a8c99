// A server that knows nothing of tasks, but whose calls talk while they run: they ask, report
// progress and log. Calls of `paced` go on when a call of `advance` says so.
import { EventEmitter, once } from 'node:events';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  CreateMessageResultSchema,
  ElicitResultSchema,
  ListRootsResultSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';
import { serve } from './serve.mjs';

const text = (value) => ({ content: [{ type: 'text', text: value }] });

// What each kind of question sends, and which part of its answer the tool returns.
const QUESTIONS = {
  form: {
    method: 'elicitation/create',
    params: {
      mode: 'form',
      message: 'Who is there?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    },
    schema: ElicitResultSchema,
    read: ({ action, content }) => `${action}: ${content?.name}`,
  },
  url: {
    method: 'elicitation/create',
    params: {
      mode: 'url',
      message: 'Please sign in.',
      url: 'https://example.com/sign-in',
      elicitationId: 'sign-in-1',
    },
    schema: ElicitResultSchema,
    read: ({ action }) => action,
  },
  sampling: {
    method: 'sampling/createMessage',
    params: { messages: [{ role: 'user', content: { type: 'text', text: 'Two plus two?' } }], maxTokens: 10 },
    schema: CreateMessageResultSchema,
    read: ({ model, content }) => `${model}: ${content.text}`,
  },
  roots: {
    method: 'roots/list',
    schema: ListRootsResultSchema,
    read: ({ roots }) => roots.map(({ uri }) => uri).join(' '),
  },
};

// How far each key may go, and how often a call with it was started.
const allowed = {};
const started = {};
const changes = new EventEmitter().setMaxListeners(0);

function newServer() {
  const server = new McpServer({ name: 'talking', version: '1.0.0' }, { capabilities: { logging: {} } });

  server.registerTool(
    'ask',
    { description: 'Asks several questions at once.', inputSchema: { kinds: z.array(z.string()) } },
    async ({ kinds }, extra) => {
      const answers = kinds.map(async (kind) => {
        const { method, params, schema, read } = QUESTIONS[kind];
        // Unlike the server's own methods, this asks whether or not the client says that it can answer.
        return extra.sendRequest({ method, params }, schema).then(read, ({ code }) => `error ${code}`);
      });
      return text((await Promise.all(answers)).join(', '));
    },
  );

  server.registerTool(
    'paced',
    {
      description: 'Logs, then reports each step when it is allowed to.',
      inputSchema: { key: z.string(), steps: z.number() },
    },
    async ({ key, steps }, { signal, sendNotification, _meta: { progressToken } = {} }) => {
      started[key] = (started[key] ?? 0) + 1;
      await sendNotification({ method: 'notifications/message', params: { level: 'info', data: key } });
      for (let step = 1; step <= steps; step++) {
        while ((allowed[key] ?? 0) < step) await once(changes, 'change', { signal });
        if (progressToken === undefined) continue;
        const params = { progressToken, progress: step, total: steps, message: `step ${step}` };
        await sendNotification({ method: 'notifications/progress', params });
      }
      // The end is a step of its own, so that progress can be seen before it.
      while ((allowed[key] ?? 0) <= steps) await once(changes, 'change', { signal });
      return text(`started ${started[key]} times`);
    },
  );

  server.registerTool(
    'advance',
    { description: 'Lets the calls of a key go on.', inputSchema: { key: z.string(), by: z.number() } },
    ({ key, by }) => {
      allowed[key] = (allowed[key] ?? 0) + by;
      changes.emit('change');
      return text('ok');
    },
  );

  return server;
}

serve(newServer);
