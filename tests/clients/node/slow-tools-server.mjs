// A server that knows nothing of tasks, with slow tools: `report` is silent, `count` says how often it ran. Over HTTP,
// or over stdio with --stdio.
import { setTimeout as sleep } from 'node:timers/promises';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { serve } from './serve.mjs';

let ran = 0;

function newServer() {
  const server = new Server({ name: 'slow-tools', version: '1.0.0' }, { capabilities: { tools: {} } });
  const inputSchema = { type: 'object', properties: { ms: { type: 'number' } } };
  const outputSchema = { type: 'object', properties: { ms: { type: 'number' } }, required: ['ms'] };
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: [
      { name: 'report', title: 'Write a report', inputSchema, outputSchema },
      { name: 'count', inputSchema },
    ],
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) => {
    if (params.name === 'count') return { content: [{ type: 'text', text: String(ran) }] };
    ran += 1;
    const { ms } = params.arguments;
    await sleep(ms, undefined, { signal });
    return { content: [{ type: 'text', text: `the report took ${ms} ms` }], structuredContent: { ms } };
  });
  return server;
}

if (process.argv.includes('--stdio')) await newServer().connect(new StdioServerTransport());
else await serve(newServer);
