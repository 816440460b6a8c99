// An OAuth 2.1 authorization server as clients need one: metadata, registration, codes with PKCE,
// tokens, keys.
import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

/** Whom its tokens are for. */
export const AUDIENCE = 'taskgate-test';
/** What they allow. */
export const SCOPE = 'mcp:tools';
/** The password of every client. */
export const SECRET = 'a secret';

const b64 = (value) => Buffer.from(value).toString('base64url');

/** Starts an issuer; `url` is its name. It ends with `stop`. */
export async function startIssuer() {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const codes = new Map();
  const refreshTokens = new Map();
  // The subject, the resource and the end of each token: { grant_type, subject, resource, end }.
  const grants = [];
  // Lifetimes of the next tokens, in seconds; an hour each once the list is empty.
  const lifetimes = [];

  function accessToken(sub, exp) {
    const iat = Date.now() / 1000;
    const claims = { iss: issuer.url, sub, aud: AUDIENCE, iat, exp, jti: randomUUID(), scope: SCOPE };
    const header = { alg: 'ES256', kid: 'key', typ: 'at+jwt' };
    const signed = `${b64(JSON.stringify(header))}.${b64(JSON.stringify(claims))}`;
    const signature = sign('sha256', signed, { key: privateKey, dsaEncoding: 'ieee-p1363' });
    return `${signed}.${b64(signature)}`;
  }

  // The subject that the request for a token proves.
  function subjectOf(form, authorization) {
    switch (form.get('grant_type')) {
      case 'client_credentials': {
        const [client, secret] = atob(authorization.replace('Basic ', '')).split(':').map(decodeURIComponent);
        return secret === SECRET ? client : undefined;
      }
      case 'authorization_code': {
        const { subject, challenge } = codes.get(form.get('code')) ?? {};
        codes.delete(form.get('code'));
        const proof = createHash('sha256').update(form.get('code_verifier')).digest('base64url');
        return proof === challenge ? subject : undefined;
      }
      case 'refresh_token': {
        const subject = refreshTokens.get(form.get('refresh_token'));
        refreshTokens.delete(form.get('refresh_token'));
        return subject;
      }
    }
  }

  function token(form, authorization) {
    const subject = subjectOf(form, authorization);
    if (subject === undefined) return [400, { error: 'invalid_grant' }];
    const [grant_type, resource] = ['grant_type', 'resource'].map((name) => form.get(name));
    const end = Date.now() / 1000 + (lifetimes.shift() ?? 3600);
    grants.push({ grant_type, subject, resource, end });
    const answer = { access_token: accessToken(subject, end), token_type: 'Bearer' };
    if (grant_type !== 'client_credentials') {
      answer.refresh_token = randomUUID();
      refreshTokens.set(answer.refresh_token, subject);
    }
    return [200, answer];
  }

  async function answer(request) {
    const { pathname, searchParams } = new URL(request.url, issuer.url);
    let body = '';
    for await (const chunk of request) body += chunk;
    switch (pathname) {
      case '/.well-known/oauth-authorization-server':
        return [200, metadata()];
      case '/jwks.json': {
        const key = { ...publicKey.export({ format: 'jwk' }), kid: 'key', use: 'sig', alg: 'ES256' };
        return [200, { keys: [key] }];
      }
      case '/register':
        return [201, { ...JSON.parse(body), client_id: randomUUID() }];
      // A user who is signed in already, and agrees.
      case '/authorize': {
        const code = randomUUID();
        codes.set(code, { subject: 'user', challenge: searchParams.get('code_challenge') });
        const location = new URL(searchParams.get('redirect_uri'));
        location.searchParams.set('code', code);
        return [302, {}, { location: location.href }];
      }
      case '/token':
        return token(new URLSearchParams(body), request.headers.authorization ?? '');
      default:
        return [404, {}];
    }
  }

  const metadata = () => ({
    issuer: issuer.url,
    authorization_endpoint: `${issuer.url}/authorize`,
    token_endpoint: `${issuer.url}/token`,
    registration_endpoint: `${issuer.url}/register`,
    response_types_supported: ['code'],
    grant_types_supported: ['authorization_code', 'refresh_token', 'client_credentials'],
    code_challenge_methods_supported: ['S256'],
    token_endpoint_auth_methods_supported: ['client_secret_basic', 'none'],
  });

  const server = createServer(async (request, response) => {
    const [status, document, headers] = await answer(request);
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(JSON.stringify(document));
  });
  // The process ends even if a test fails before it can stop this server.
  server.listen(0, '127.0.0.1').unref();
  await once(server, 'listening');

  const issuer = {
    url: `http://127.0.0.1:${server.address().port}`,
    grants,
    lifetimes,
    stop: () => server.close(),
  };
  return issuer;
}
