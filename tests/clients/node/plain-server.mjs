// An ordinary server that knows nothing of tasks. Flags: --json answers as JSON instead of SSE,
// --stateless keeps no sessions, --resumable keeps the events of a stream, so that it can be resumed.
import { EventEmitter, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { InMemoryEventStore } from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { serve } from './serve.mjs';

const json = process.argv.includes('--json');
const stateless = process.argv.includes('--stateless');
const eventStore = process.argv.includes('--resumable') ? new InMemoryEventStore() : undefined;

// What happened since the start: `<tool>.started`, `.finished` and `.aborted`, `cancelled` for the
// notifications that arrived, `streams.<session>` for the GET streams of a session.
const counters = {};
const changes = new EventEmitter().setMaxListeners(0);
function count(name) {
  counters[name] = (counters[name] ?? 0) + 1;
  changes.emit('change');
}

const text = (value) => ({ content: [{ type: 'text', text: value }] });

const tools = {
  echo: ({ text: value }) => ({
    ...text(value),
    structuredContent: { value },
    _meta: { 'example.com/trace': 'kept' },
  }),

  async slow({ ms, steps = 1 }, { extra, progress }) {
    for (let step = 1; step <= steps; step++) {
      await sleep(ms / steps, undefined, { signal: extra.signal });
      await progress(step, steps);
    }
    return text(`slept for ${ms} ms`);
  },

  fail: ({ text: value }) => ({ ...text(value), isError: true }),

  throw({ text: value }) {
    throw Object.assign(new Error(value), { code: -32050, data: { reason: value } });
  },

  async hang(_, { extra }) {
    await once(extra.signal, 'abort');
    throw new Error('aborted');
  },

  async ask({ question }, { server, related, progress }) {
    await progress(1, 2);
    const answer = await server.elicitInput(
      {
        message: question,
        requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
      },
      related,
    );
    return text(`${answer.action}: ${answer.content?.name}`);
  },

  async sample({ prompt }, { server, related }) {
    const message = { role: 'user', content: { type: 'text', text: prompt } };
    const answer = await server.createMessage({ messages: [message], maxTokens: 10 }, related);
    return text(`${answer.model}: ${answer.content.text}`);
  },

  // Answers with all counters, as soon as the named one has reached a number.
  async stats({ counter, atLeast = 0 }, { extra }) {
    const name = counter === 'streams' ? `streams.${extra.sessionId}` : counter;
    while (name !== undefined && (counters[name] ?? 0) < atLeast) {
      await once(changes, 'change', { signal: extra.signal });
    }
    return { ...text(JSON.stringify(counters)), structuredContent: counters };
  },
};

function newServer() {
  const server = new Server(
    { name: 'plain', version: '1.0.0' },
    { capabilities: { tools: {} }, instructions: 'A server without tasks.' },
  );

  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: Object.keys(tools).map((name) => ({
      name,
      description: `The tool ${name}.`,
      inputSchema: { type: 'object' },
      // The SDK's own McpServer stamps this on every tool that is not made for tasks.
      execution: { taskSupport: 'forbidden' },
    })),
  }));

  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const { name, arguments: args = {} } = params;
    const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
    if (!tool) throw Object.assign(new Error(`no tool ${name}`), { code: -32602 });

    // A JSON answer has no room for other messages: they take the GET stream.
    const related = json ? {} : { relatedRequestId: extra.requestId };
    const progress = async (progress, total) => {
      const progressToken = extra._meta?.progressToken;
      if (progressToken === undefined) return;
      await server.notification(
        { method: 'notifications/progress', params: { progressToken, progress, total } },
        related,
      );
    };

    count(`${name}.started`);
    extra.signal.addEventListener('abort', () => count(`${name}.aborted`));
    const result = await tool(args, { server, extra, related, progress });
    count(`${name}.finished`);
    return result;
  });

  return server;
}

serve(newServer, {
  stateless,
  transport: { enableJsonResponse: json, eventStore },
  watch(req) {
    if (req.body?.method === 'notifications/cancelled') count('cancelled');
    if (req.method === 'GET') count(`streams.${req.headers['mcp-session-id']}`);
  },
});
