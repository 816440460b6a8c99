// A full-featured SDK server, made of tools, resources and prompts that may be added to.
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import * as mcp from '@modelcontextprotocol/sdk/types.js';
import * as everything from './everything-content.mjs';
import { tools as everythingTools } from './everything-tools.mjs';

const { resources, template } = everything;
const RESOURCE_NOT_FOUND = -32002;

const capabilities = {
  completions: {},
  logging: {},
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  tools: { listChanged: true },
};

/** Makes a server that also has these tools and prompts; both are told the server and the call. */
export function newEverythingServer(more = {}) {
  const tools = { ...everythingTools, ...more.tools };
  const prompts = { ...everything.prompts, ...more.prompts };
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
    if (!Object.hasOwn(resources, uri))
      throw new mcp.McpError(RESOURCE_NOT_FOUND, `no resource ${uri}`, { uri });
    const { mimeType, text, blob } = resources[uri];
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
  handle(mcp.GetPromptRequestSchema, async ({ params }, extra) => ({
    messages: await find(prompts, params.name, 'prompt').messages(params.arguments ?? {}, { server, extra }),
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
