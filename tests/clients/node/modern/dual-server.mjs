// A server of both generations, without tasks, with everything that the suite at 2026-07-28 asks for. With
// --stdio it speaks over stdio, with --modern-only it refuses the older generation.
import { createServer } from 'node:http';
import {
  localhostHostValidation,
  localhostOriginValidation,
  toNodeHandler,
} from '@modelcontextprotocol/node';
import { createMcpHandler, ProtocolError, ResourceNotFoundError, Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { prompts as plainPrompts, resources, template } from '../everything-content.mjs';
import { tools as plainTools } from '../everything-tools.mjs';
import { askingPrompts, askingTaskTools, askingTools, states } from './dual-tools.mjs';
import { taskTools } from './task-tools.mjs';

const overStdio = process.argv.includes('--stdio');
const modernOnly = process.argv.includes('--modern-only');
const CLIENT_CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';

const changing = (tell) => ({
  description: 'Tells that a list has changed.',
  async call(_, { server }) {
    await tell(server);
    return { content: [{ type: 'text', text: 'Told.' }] };
  },
});

const tools = {
  ...plainTools,
  ...askingTools,
  ...taskTools,
  ...askingTaskTools,
  test_trigger_tool_change: changing((server) =>
    overStdio ? server.sendToolListChanged() : handler.notify.toolsChanged(),
  ),
  test_trigger_prompt_change: changing((server) =>
    overStdio ? server.sendPromptListChanged() : handler.notify.promptsChanged(),
  ),
};
const prompts = { ...plainPrompts, ...askingPrompts };

const capabilities = {
  completions: {},
  logging: {},
  prompts: { listChanged: true },
  resources: { listChanged: true },
  tools: { listChanged: true },
};

function newServer() {
  const server = new Server(
    { name: 'dual', version: '1.0.0' },
    { capabilities, requestState: { verify: states.verify } },
  );
  const handle = (method, handler) => server.setRequestHandler(method, handler);

  handle('tools/list', () => ({
    tools: Object.entries(tools).map(([name, { description, inputSchema }]) => ({
      name,
      description,
      inputSchema: inputSchema ?? { type: 'object' },
    })),
  }));
  handle('tools/call', ({ params }, { mcpReq }) =>
    find(tools, params.name).call(params.arguments ?? {}, {
      mcpReq,
      capabilities: mcpReq.envelope?.[CLIENT_CAPABILITIES] ?? server.getClientCapabilities() ?? {},
      // What tools of the older SDK know of their call.
      server,
      extra: { signal: mcpReq.signal, _meta: mcpReq._meta, sendNotification: mcpReq.notify },
    }),
  );

  handle('resources/list', () => ({
    resources: Object.entries(resources).map(([uri, { name, description, mimeType }]) => ({
      uri,
      name,
      description,
      mimeType,
    })),
  }));
  handle('resources/templates/list', () => ({ resourceTemplates: [template.entry] }));
  handle('resources/read', ({ params: { uri } }) => {
    const fromTemplate = template.read(uri);
    if (fromTemplate) return { contents: [fromTemplate] };
    if (!Object.hasOwn(resources, uri)) throw new ResourceNotFoundError(uri);
    const { mimeType, text, blob } = resources[uri];
    return { contents: [{ uri, mimeType, ...(blob ? { blob } : { text }) }] };
  });

  handle('prompts/list', () => ({
    prompts: Object.entries(prompts).map(([name, { description, arguments: args }]) => ({
      name,
      description,
      arguments: args,
    })),
  }));
  handle('prompts/get', async ({ params }, { mcpReq }) => {
    const messages = await find(prompts, params.name).messages(params.arguments ?? {}, { mcpReq });
    return Array.isArray(messages) ? { messages } : messages;
  });
  handle('completion/complete', ({ params }) => {
    const values = ['paris', 'park', 'party'].filter((word) => word.startsWith(params.argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });
  return server;
}

function find(table, key) {
  if (Object.hasOwn(table, key)) return table[key];
  throw new ProtocolError(-32602, `there is no ${key}`);
}

const handler = createMcpHandler(newServer, { legacy: modernOnly ? 'reject' : 'stateless' });

if (overStdio) serveStdio(newServer);
else {
  const serve = toNodeHandler(handler);
  const [hostIsLocal, originIsLocal] = [localhostHostValidation(), localhostOriginValidation()];
  const http = createServer((req, res) => {
    if (hostIsLocal(req, res) && originIsLocal(req, res)) serve(req, res);
  });
  http.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`));
}
