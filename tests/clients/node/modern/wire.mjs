// Requests of 2026-07-28 over HTTP, written by hand.
import {
  PROTOCOL_VERSION_META_KEY,
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
} from '@modelcontextprotocol/client';

export const REVISION = '2026-07-28';
export const TASKS = 'io.modelcontextprotocol/tasks';
export const DECLARES_TASKS = { extensions: { [TASKS]: {} } };

// Where the body has what `Mcp-Name` repeats.
const NAMED_BY = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'tasks/get': 'taskId',
  'tasks/update': 'taskId',
  'tasks/cancel': 'taskId',
};

/** A client of `url`. It keeps a list of its requests, `exchanges`: { method, openMs, status }. */
export class Wire {
  exchanges = [];
  #lastId = 0;

  constructor(url, { capabilities = DECLARES_TASKS, headers = {} } = {}) {
    Object.assign(this, { url, capabilities, headers });
  }

  /** Sends a request; gives its result, and throws its JSON-RPC error. */
  async request(method, params, options) {
    const { result, error } = await this.exchange(method, params, options);
    if (error !== undefined) throw Object.assign(new Error(error.message), error);
    return result;
  }

  /** Sends a request; gives the response as it came, with the notifications before it. */
  async exchange(method, params, options) {
    const notifications = [];
    for await (const message of this.stream(method, params, options)) {
      if (message.method === undefined) return { ...message, notifications };
      notifications.push(message);
    }
    throw new Error(`${method} was not answered`);
  }

  /** Sends a request; yields every message that comes. */
  async *stream(method, params = {}, { headers = {}, signal } = {}) {
    const begun = performance.now();
    const exchange = { method };
    this.exchanges.push(exchange);
    const body = {
      jsonrpc: '2.0',
      id: (this.#lastId += 1),
      method,
      params: { ...params, _meta: this.#meta(params) },
    };
    const name = params[NAMED_BY[method]];
    try {
      const response = await fetch(this.url, {
        method: 'POST',
        headers: headersOf(
          {
            'content-type': 'application/json',
            accept: 'application/json, text/event-stream',
            'mcp-protocol-version': REVISION,
            'mcp-method': method,
            'mcp-name': name,
          },
          this.headers,
          headers,
        ),
        body: JSON.stringify(body),
        signal,
      });
      exchange.status = response.status;
      yield* messagesOf(response);
    } finally {
      exchange.openMs = performance.now() - begun;
    }
  }

  #meta({ _meta }) {
    return {
      [PROTOCOL_VERSION_META_KEY]: REVISION,
      [CLIENT_INFO_META_KEY]: { name: 'by-hand', version: '1.0.0' },
      [CLIENT_CAPABILITIES_META_KEY]: this.capabilities,
      ..._meta,
    };
  }
}

// Later ones replace earlier ones, whatever their case; `undefined` leaves one out.
function headersOf(...sets) {
  const headers = new Headers();
  for (const [name, value] of sets.flatMap(Object.entries)) {
    if (value === undefined) headers.delete(name);
    else headers.set(name, value);
  }
  return headers;
}

async function* messagesOf(response) {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
    yield await response.json();
    return;
  }
  let rest = '';
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + chunk).split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const data = event
        .split(/\r?\n/)
        .filter((line) => line.startsWith('data:'))
        .map((line) => line.slice('data:'.length).replace(/^ /, ''));
      if (data.some((line) => line !== '')) yield JSON.parse(data.join('\n'));
    }
  }
}
