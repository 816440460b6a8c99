// A TCP proxy between a client and taskgate that cuts connections.
import { connect, createServer } from 'node:net';
import { once } from 'node:events';

/** A proxy in front of `url`; its own `url` is where it listens. */
export async function startProxy(url) {
  const { hostname, port } = new URL(url);
  const links = new Set();
  const server = createServer((client) => {
    const upstream = connect(port, hostname);
    // What went each way since the latest request on this connection began.
    const link = { sent: '', received: '', cut: () => (client.destroy(), upstream.destroy()) };
    links.add(link);
    client.on('data', (bytes) => {
      if (link.received !== '') link.sent = link.received = '';
      link.sent += bytes;
      upstream.write(bytes);
    });
    upstream.on('data', (bytes) => {
      link.received += bytes;
      client.write(bytes);
      server.emit('received');
    });
    for (const socket of [client, upstream]) {
      socket.on('error', () => {});
      socket.on('close', () => {
        links.delete(link);
        link.cut();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  return {
    url: Object.assign(new URL(url), { port: server.address().port }).href,
    /** Cuts the connection whose latest request matches `request`, once its answer matches `answer`. */
    async cut(request, answer) {
      for (;;) {
        for (const link of links) {
          if (request.test(link.sent) && answer.test(link.received)) return link.cut();
        }
        await once(server, 'received');
      }
    },
    stop() {
      server.close();
      for (const link of links) link.cut();
    },
  };
}
