// Serves an SDK server over Streamable HTTP on a free loopback port and prints its URL.
import { randomUUID } from 'node:crypto';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { isInitializeRequest } from '@modelcontextprotocol/sdk/types.js';

// `newServer` makes one SDK server for each session, or for each request when `stateless`.
// `watch` gets every HTTP request before it is handled.
export function serve(newServer, { stateless = false, transport: options = {}, watch = () => {} } = {}) {
  const sessions = new Map();
  const app = createMcpExpressApp();

  const open = async (sessionOptions) => {
    const transport = new StreamableHTTPServerTransport({ ...options, ...sessionOptions });
    await newServer().connect(transport);
    return transport;
  };

  const transportFor = async (req, res) => {
    if (stateless) {
      if (req.method !== 'POST') return refuse(res, 405, 'Method not allowed');
      const transport = await open({ sessionIdGenerator: undefined });
      // Without a session the connection is all that ties the server to its request.
      res.on('close', () => transport.close());
      return transport;
    }
    const id = req.headers['mcp-session-id'];
    if (id !== undefined) return sessions.get(id) ?? refuse(res, 404, 'Session not found');
    if (!isInitializeRequest(req.body)) return refuse(res, 400, 'Session id is missing');
    const transport = await open({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
      onsessionclosed: (id) => sessions.delete(id),
    });
    return transport;
  };

  app.all('/mcp', async (req, res) => {
    watch(req);
    const transport = await transportFor(req, res);
    await transport?.handleRequest(req, res, req.body);
  });

  const http = app.listen(0, '127.0.0.1', () => {
    console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`);
  });
}

function refuse(res, status, message) {
  res.status(status).json({ jsonrpc: '2.0', id: null, error: { code: -32000, message } });
}
