// A stdio server that ignores both the end of its stdin and SIGTERM. Its instructions are its pid.
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';

process.on('SIGTERM', () => {});
setInterval(() => {}, 60_000);

const server = new Server(
  { name: 'stubborn', version: '1.0.0' },
  { capabilities: { tools: {} }, instructions: String(process.pid) },
);
await server.connect(new StdioServerTransport());
