// Clients that log in: the SDK's OAuth client finds the issuer through taskgate's metadata, and its tasks
// stay its own while tokens come and go.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { ClientCredentialsProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createTask, getResult, INVALID_PARAMS, listAll, outcome, related } from './calls.mjs';
import { AUDIENCE, SCOPE, SECRET, startIssuer } from './issuer.mjs';
import { connect, startServer, startTaskgateWith } from './kit.mjs';
import { advance } from './talking.mjs';

const ONCE = { content: [{ type: 'text', text: 'started 1 times' }] };

let issuer;
let server;
let gate;
before(async () => {
  issuer = await startIssuer();
  server = await startServer('talking-server.mjs');
  gate = await startTaskgateWith(`
    [auth]
    mode = "jwt"
    issuer = ${JSON.stringify(issuer.url)}
    audience = [${JSON.stringify(AUDIENCE)}]
    jwks = "${issuer.url}/jwks.json"
    required_scopes = [${JSON.stringify(SCOPE)}]
    leeway = "1ms"
    [tasks]
    poll_interval = "20ms"
    [[upstream]]
    url = ${JSON.stringify(server.url)}
  `);
});
after(async () => {
  assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly');
  await server?.stop();
  issuer?.stop();
});

/** The SDK's provider for a machine of this name. */
const machine = (clientId) =>
  new ClientCredentialsProvider({ clientId, clientSecret: SECRET, expectedIssuer: issuer.url });

/** A provider for a user, whose browser is sent to the issuer and comes back with a code. */
class User {
  redirectUrl = 'http://127.0.0.1/callback';
  clientMetadata = { redirect_uris: [this.redirectUrl], token_endpoint_auth_method: 'none' };
  clientInformation = () => this.client;
  saveClientInformation = (client) => (this.client = client);
  tokens = () => this.saved;
  saveTokens = (tokens) => (this.saved = tokens);
  codeVerifier = () => this.verifier;
  saveCodeVerifier = (verifier) => (this.verifier = verifier);
  async redirectToAuthorization(url) {
    const { headers } = await fetch(url, { redirect: 'manual' });
    this.code = new URL(headers.get('location')).searchParams.get('code');
  }
}

/** A user who has been through the login. */
async function loggedIn(t) {
  const authProvider = new User();
  await assert.rejects(connect(t, gate.url, { authProvider }), UnauthorizedError);
  const transport = new StreamableHTTPClientTransport(new URL(gate.url), { authProvider });
  await transport.finishAuth(authProvider.code);
  return authProvider;
}

/** Waits until a token is no longer good. */
const expired = ({ end }) => sleep(Math.max(0, end * 1000 - Date.now()) + 20);

const kinds = {
  'a machine': { login: (t) => machine(t.fullName), grants: ['client_credentials', 'client_credentials'] },
  'a user': { login: loggedIn, grants: ['authorization_code', 'refresh_token'] },
};

for (const [kind, { login, grants }] of Object.entries(kinds)) {
  describe(`the token of ${kind}`, () => {
    test('comes from the issuer that the metadata names, for this resource and its scopes', async (t) => {
      const seen = issuer.grants.length;
      const client = await connect(t, gate.url, { authProvider: await login(t) });
      assert.deepEqual(await listAll(client), []);
      const [grant, ...more] = issuer.grants.slice(seen);
      assert.deepEqual(more, []);
      assert.equal(grant.grant_type, grants[0]);
      assert.equal(grant.resource, gate.url);
    });

    test('is replaced when it expires within a task, and the result comes with the new one', async (t) => {
      const seen = issuer.grants.length;
      issuer.lifetimes.push(1.5);
      const authProvider = await login(t);
      const client = await connect(t, gate.url, { authProvider });
      const { taskId } = await createTask(client, 'paced', { key: t.fullName, steps: 0 });
      await expired(issuer.grants[seen]);
      await advance(client, t.fullName);
      assert.deepEqual(await getResult(client, taskId), related(ONCE, taskId));
      assert.deepEqual(
        issuer.grants.slice(seen).map(({ grant_type }) => grant_type),
        grants,
      );
    });
  });
}

// A stream ends with its token. The SDK, sent to get a new one when it resumes the stream, then opens
// a GET stream instead, and its request waits in vain.
test('a result that was waited for while the token expired is there when asked for again', async (t) => {
  const other = await connect(t, gate.url, { authProvider: machine('waiter') });
  const seen = issuer.grants.length;
  issuer.lifetimes.push(1);
  const client = await connect(t, gate.url, { authProvider: machine('waiter') });
  const { taskId } = await createTask(client, 'paced', { key: t.fullName, steps: 0 });
  const waiting = outcome(getResult(client, taskId, { timeout: 3000 }));
  await expired(issuer.grants[seen]);
  await advance(other, t.fullName);
  await waiting;
  assert.deepEqual(await getResult(client, taskId), related(ONCE, taskId));
});

test('a task belongs to its owner in every session, and another owner finds nothing', async (t) => {
  const client = await connect(t, gate.url, { authProvider: machine('alice') });
  const { taskId } = await createTask(client, 'paced', { key: t.fullName, steps: 0 });
  await advance(client, t.fullName);

  const again = await connect(t, gate.url, { authProvider: machine('alice') });
  assert.deepEqual(await getResult(again, taskId), related(ONCE, taskId));

  const other = await connect(t, gate.url, { authProvider: machine('bob') });
  assert.deepEqual(await listAll(other), []);
  assert.equal((await outcome(getResult(other, taskId))).error.code, INVALID_PARAMS);
});
