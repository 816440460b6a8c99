// A full-featured server that has everything the conformance suite's server scenarios ask for.
import { InMemoryEventStore } from '@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import * as mcp from '@modelcontextprotocol/sdk/types.js';
import { prompts, resources, template } from './everything-content.mjs';
import { tools } from './everything-tools.mjs';
import { serve } from './serve.mjs';

const capabilities = {
  completions: {},
  logging: {},
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  tools: { listChanged: true },
};

function newServer() {
  const server = new Server({ name: 'everything', version: '1.0.0' }, { capabilities });
  const handle = (schema, handler) => server.setRequestHandler(schema, handler);
  const subscribed = new Set();

  handle(mcp.ListToolsRequestSchema, () => ({
    tools: Object.entries(tools).map(([name, { description, inputSchema }]) => ({
      name,
      description,
      inputSchema: inputSchema ?? { type: 'object' },
    })),
  }));
  handle(mcp.CallToolRequestSchema, ({ params }, extra) => {
    const tool = find(tools, params.name, 'tool');
    return tool.call(params.arguments ?? {}, { server, extra });
  });

  handle(mcp.ListResourcesRequestSchema, () => ({
    resources: Object.entries(resources).map(([uri, { name, description, mimeType }]) => ({
      uri,
      name,
      description,
      mimeType,
    })),
  }));
  handle(mcp.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: [template.entry] }));
  handle(mcp.ReadResourceRequestSchema, ({ params: { uri } }) => {
    const fromTemplate = template.read(uri);
    if (fromTemplate) return { contents: [fromTemplate] };
    const { mimeType, text, blob } = find(resources, uri, 'resource');
    return { contents: [{ uri, mimeType, ...(blob ? { blob } : { text }) }] };
  });
  handle(mcp.SubscribeRequestSchema, ({ params: { uri } }) => {
    subscribed.add(uri);
    return {};
  });
  handle(mcp.UnsubscribeRequestSchema, ({ params: { uri } }) => {
    subscribed.delete(uri);
    return {};
  });

  handle(mcp.ListPromptsRequestSchema, () => ({
    prompts: Object.entries(prompts).map(([name, { description, arguments: args }]) => ({
      name,
      description,
      arguments: args,
    })),
  }));
  handle(mcp.GetPromptRequestSchema, ({ params }) => ({
    messages: find(prompts, params.name, 'prompt').messages(params.arguments ?? {}),
  }));
  handle(mcp.CompleteRequestSchema, ({ params }) => {
    const values = ['paris', 'park', 'party'].filter((word) => word.startsWith(params.argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });

  return server;
}

function find(table, key, kind) {
  if (Object.hasOwn(table, key)) return table[key];
  throw new mcp.McpError(mcp.ErrorCode.InvalidParams, `no ${kind} ${key}`);
}

serve(newServer, {
  // The event store makes the transport send priming events and lets clients resume a stream.
  transport: { eventStore: new InMemoryEventStore(), retryInterval: 100 },
});
