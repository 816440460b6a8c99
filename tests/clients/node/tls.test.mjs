// taskgate serves clients over TLS.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { createTask, getResult, related } from './calls.mjs';
import { connect, startServer, startTaskgateWith } from './kit.mjs';

const folder = mkdtempSync(join(tmpdir(), 'taskgate-test-'));
const path = (name) => join(folder, name);
const openssl = (...args) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });

let server;
let gate;
before(async () => {
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const request = (name, key, out, ...more) =>
    openssl('req', ...newKey, '-subj', `/CN=${name}`, '-keyout', key, '-out', out, ...more);
  request('authority', 'ca.key', 'ca.pem', '-x509', '-days', '2');
  request('taskgate', 'key.pem', 'request.pem');
  writeFileSync(path('names'), 'subjectAltName = IP:127.0.0.1');
  const sign = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '1', '-extfile', 'names'];
  openssl('x509', '-req', '-in', 'request.pem', '-out', 'cert.pem', ...sign);

  server = await startServer('plain-server.mjs');
  gate = await startTaskgateWith(`
    [server.tls]
    cert = ${JSON.stringify(path('cert.pem'))}
    key = ${JSON.stringify(path('key.pem'))}
    [[upstream]]
    url = ${JSON.stringify(server.url)}
  `);
});
after(async () => {
  assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly');
  await server?.stop();
  rmSync(folder, { recursive: true });
});

test('a client that knows the authority runs a task over TLS, and any other stays away', async (t) => {
  assert.match(gate.url, /^https:/);
  await assert.rejects(connect(t, gate.url), ({ cause }) => /certificate/.test(cause.message));

  setDefaultCACertificates([...getCACertificates(), readFileSync(path('ca.pem'), 'utf8')]);
  const client = await connect(t, gate.url);
  const { taskId } = await createTask(client, 'slow', { ms: 50 });
  assert.deepEqual(
    await getResult(client, taskId),
    related({ content: [{ type: 'text', text: 'slept for 50 ms' }] }, taskId),
  );
});
