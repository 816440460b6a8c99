// A server of the older generation with everything that the suite at 2026-07-28 asks for, as far as it can.
// It knows nothing of tasks. With --stdio it speaks over stdio, with --notes FOLDER it shares what it
// remembers with other processes.
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { newEverythingServer } from '../everything.mjs';
import { serve } from '../serve.mjs';
import { askingPrompts, askingTools, changingTools, signInTools } from './asking-tools.mjs';
import { taskTools } from './task-tools.mjs';

const sessions = new Set();
const more = {
  tools: { ...askingTools, ...signInTools, ...taskTools, ...changingTools(sessions) },
  prompts: askingPrompts,
};

function newServer() {
  const server = newEverythingServer(more);
  sessions.add(server);
  server.onclose = () => sessions.delete(server);
  return server;
}

if (process.argv.includes('--stdio')) await newServer().connect(new StdioServerTransport());
else serve(newServer);
