// Starts and stops the processes of a test, and connects SDK clients.
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const here = import.meta.dirname;
export const TASKGATE = process.env.TASKGATE_BIN ?? resolve(here, '../../../target/debug/taskgate');
const START_WITHIN_MS = 20_000;
const STOP_WITHIN_MS = 15_000;

// No process outlives its test, however the test ends.
const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

/** Starts one of the servers in this folder; `url` is where it listens. */
export function startServer(file, ...args) {
  return start(process.execPath, [join(here, file), ...args], 'stdout');
}

/** Starts taskgate with arguments of `serve`; `url` is where it listens. */
export function startTaskgate(...args) {
  return start(TASKGATE, ['serve', '--listen', '127.0.0.1:0', ...args], 'stderr');
}

/** Starts taskgate with the text of a configuration file. */
export async function startTaskgateWith(config) {
  const { file, remove } = configFile(config);
  // The file has been read once the address is known.
  return startTaskgate('--config', file).finally(remove);
}

/** Starts taskgate with the text of a configuration file and its tasks in a file; it can be killed and started again. */
export async function startLastingTaskgate(config) {
  const { file, remove } = configFile(config);
  const args = ['--config', file, '--store', join(dirname(file), 'store.db')];
  const serve = (listen) => start(TASKGATE, ['serve', '--listen', listen, ...args], 'stderr');
  let gate = await serve('127.0.0.1:0');
  const { url } = gate;
  return {
    url,
    /** Kills it, and starts it again at the same address. */
    async restart() {
      await gate.kill();
      gate = await serve(new URL(url).host);
    },
    /** Ends it; gives the exit code. */
    stop: () => gate.stop().finally(remove),
  };
}

/** A configuration file with this text, and what removes it. */
export function configFile(config) {
  const folder = mkdtempSync(join(tmpdir(), 'taskgate-test-'));
  const file = join(folder, 'config.toml');
  writeFileSync(file, config);
  return { file, remove: () => rmSync(folder, { recursive: true }) };
}

/** The command of one of the official stdio servers that npm has installed. */
export function npmServer(name) {
  const manifest = `@modelcontextprotocol/server-${name}/package.json`;
  const script = join(dirname(createRequire(import.meta.url).resolve(manifest)), 'dist/index.js');
  return [process.execPath, script, 'stdio'];
}

// Runs until the stream `ready` has named the address.
async function start(command, args, ready) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  const ended = new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(code ?? signal));
  }).finally(() => running.delete(child));

  const output = [];
  const printed = new EventEmitter();
  const url = new Promise((resolve, reject) => {
    for (const name of ['stdout', 'stderr']) {
      createInterface({ input: child[name] }).on('line', (line) => {
        output.push(line);
        printed.emit('line');
        const found = name === ready && /listening on (https?:\/\/\S+)/.exec(line);
        if (found) resolve(found[1]);
      });
    }
    const fail = (why) => reject(new Error(`${command} ${why}:\n${output.join('\n')}`));
    ended.then((how) => fail(`ended (${how})`));
    setTimeout(fail, START_WITHIN_MS, 'named no address').unref();
  });

  return {
    url: await url,
    output,
    /** Waits until a line has been printed that matches. */
    async said(pattern) {
      while (!output.some((line) => pattern.test(line))) await once(printed, 'line');
    },
    /** Asks the process to end, and does not wait for it. */
    terminate: () => child.kill('SIGTERM'),
    /** Kills the process. */
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
    /** Ends the process; gives how it ended, the exit code if it was not killed. */
    async stop() {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS);
      const how = await ended;
      clearTimeout(timer);
      return how;
    },
  };
}

/**
 * An SDK client with a session of its own at `url`, which ends with the test `t`. Its GET stream is
 * open, unless `listen` is false: then it finds no such stream, as at a server that offers none.
 * Further options go to the SDK's transport.
 */
export async function connect(t, url, { capabilities = {}, listen = true, ...options } = {}) {
  let opened;
  const listening = new Promise((resolve) => (opened = resolve));
  const fetchNoting = async (url, init) => {
    const opens = init?.method === 'GET' && !new Headers(init.headers).has('last-event-id');
    const response = opens && !listen ? new Response(null, { status: 405 }) : await fetch(url, init);
    if (opens && response.status !== 401) opened();
    return response;
  };
  const transport = new StreamableHTTPClientTransport(new URL(url), { ...options, fetch: fetchNoting });
  const client = await attach(t, transport, capabilities);
  // In a session that goes on the SDK opens no such stream.
  if (options.sessionId === undefined) await listening;
  return client;
}

/** An SDK client of a stdio server, which ends with the test `t`. */
export async function connectStdio(t, command, args, { capabilities = {} } = {}) {
  return attach(t, new StdioClientTransport({ command, args, stderr: 'ignore' }), capabilities);
}

async function attach(t, transport, capabilities) {
  const client = new Client({ name: 'taskgate-test', version: '1.0.0' }, { capabilities });
  await client.connect(transport);
  t.after(async () => {
    await client.transport?.terminateSession?.();
    await client.close();
  });
  return client;
}
