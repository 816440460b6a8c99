// The TypeScript SDK's client 2.x, which knows no tasks: plain calls, questions by multiple round trips,
// progress, list changes. Everything comes from a legacy server.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { describe, test } from 'node:test';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { join } from 'node:path';
import { configFile, TASKGATE } from '../kit.mjs';
import { Inbox } from '../talking.mjs';
import { call, connect, http, inFrontOfLegacyServer, MODERN, TASKS, text } from './kit.mjs';
import { taskToolsConfig } from './task-tools.mjs';

const METHOD_NOT_FOUND = -32601;
const house = inFrontOfLegacyServer();

for (const [how, mode] of [
  ['pinned', MODERN],
  ['by discovery', 'auto'],
]) {
  test(`it agrees on the newer generation (${how}), and learns that there are tasks`, async (t) => {
    const { client } = await connect(t, house.gate.url, { mode });
    const { client: direct } = await connect(t, house.server.url, { mode: 'legacy' });
    assert.equal(client.getProtocolEra(), 'modern');
    assert.equal(client.getNegotiatedProtocolVersion(), '2026-07-28');
    assert.deepEqual(client.getServerVersion(), direct.getServerVersion());
    const { extensions, tasks, ...capabilities } = client.getServerCapabilities();
    assert.deepEqual(extensions, { [TASKS]: {} });
    assert.equal(tasks, undefined);
    for (const name of ['tools', 'prompts', 'resources', 'completions']) {
      assert.notEqual(capabilities[name], undefined, name);
    }
  });
}

test('a client that negotiates nothing stays of the older generation on the same endpoint', async (t) => {
  const { client } = await connect(t, house.gate.url, { mode: 'legacy' });
  assert.equal(client.getProtocolEra(), 'legacy');
  assert.notEqual(client.getServerCapabilities().tasks, undefined);
  assert.equal(text(await call(client, 'greet', { name: 'Ada' })), 'Hello, Ada!');
});

test('lists, prompts, resources and completions are those of the server', async (t) => {
  const { client } = await connect(t, house.gate.url);
  const { client: direct } = await connect(t, house.server.url, { mode: 'legacy' });
  const known = async ({ tools }) =>
    tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }));
  assert.deepEqual(await known(await client.listTools()), await known(await direct.listTools()));
  for (const { execution } of (await client.listTools()).tools) assert.equal(execution, undefined);
  assert.deepEqual((await client.listPrompts()).prompts, (await direct.listPrompts()).prompts);
  assert.deepEqual((await client.listResources()).resources, (await direct.listResources()).resources);
  assert.deepEqual(
    (await client.listResourceTemplates()).resourceTemplates,
    (await direct.listResourceTemplates()).resourceTemplates,
  );
  const uri = 'test://static-text';
  assert.deepEqual(
    (await client.readResource({ uri })).contents,
    (await direct.readResource({ uri })).contents,
  );
  const prompt = { name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } };
  assert.deepEqual((await client.getPrompt(prompt)).messages, (await direct.getPrompt(prompt)).messages);
  const reference = {
    ref: { type: 'ref/prompt', name: prompt.name },
    argument: { name: 'arg1', value: 'par' },
  };
  assert.deepEqual(
    (await client.complete(reference)).completion,
    (await direct.complete(reference)).completion,
  );
});

test('a slow call is answered plainly, however slow', async (t) => {
  const { client } = await connect(t, house.gate.url);
  const args = { seconds: 2, label: t.fullName };
  assert.equal(text(await call(client, 'slow_compute', args)), `computed ${t.fullName} for 2 s`);
});

test('a tool that fails, and one that ends with an error of the protocol, do so', async (t) => {
  const { client } = await connect(t, house.gate.url);
  const failed = await call(client, 'test_error_handling');
  assert.equal(failed.isError, true);
  await assert.rejects(call(client, 'protocol_error_job'), { code: 4050, data: { reason: 'gone' } });
});

test('a tool that is always a task is refused to it, and the refusal names what is missing', async (t) => {
  const { client } = await connect(t, house.gate.url);
  await assert.rejects(call(client, 'failing_job'), {
    code: -32021,
    data: { requiredCapabilities: { extensions: { [TASKS]: {} } } },
  });
});

// A pinned client finds the same over HTTP and stdio.
const overHttp = (t, options) => connect(t, house.gate.url, options);
const overStdio = (t, options) => {
  const notes = mkdtempSync(join(tmpdir(), 'taskgate-notes-'));
  const server = [
    process.execPath,
    join(import.meta.dirname, 'legacy-server.mjs'),
    '--stdio',
    '--notes',
    notes,
  ];
  const { file, remove } = configFile(taskToolsConfig(`command = ${JSON.stringify(server)}`));
  t.after(remove);
  t.after(() => rmSync(notes, { recursive: true }));
  const transport = new StdioClientTransport({
    command: TASKGATE,
    args: ['stdio', '--config', file],
    stderr: 'ignore',
  });
  return connect(t, transport, options);
};

for (const [where, open] of [
  ['over HTTP', overHttp],
  ['over stdio', overStdio],
]) {
  describe(`questions of the server, ${where}`, () => {
    for (const [tool, method, said] of [
      ['test_input_required_result_elicitation', 'elicitation/create', 'Hello, Ada!'],
      ['test_input_required_result_sampling', 'sampling/createMessage', 'an answer'],
      ['test_input_required_result_list_roots', 'roots/list', 'file:///home/ada'],
    ]) {
      test(`${method} is asked once, and the call goes on with the answer`, async (t) => {
        const { client, asked } = await open(t);
        assert.equal(text(await call(client, tool)), said);
        assert.deepEqual(
          asked.items.map((question) => question.method),
          [method],
        );
      });
    }

    test('three at once are each asked once', async (t) => {
      const { client, asked } = await open(t);
      const result = await call(client, 'test_input_required_result_multiple_inputs');
      assert.equal(text(result), 'Hello, Ada! an answer file:///home/ada');
      assert.equal(new Set(asked.items.map(({ method }) => method)).size, 3);
      assert.equal(asked.items.length, 3);
    });

    test('one after the other, in as many rounds', async (t) => {
      const { client, asked } = await open(t);
      assert.equal(text(await call(client, 'test_input_required_result_multi_round')), 'Ada likes Ada');
      assert.deepEqual(
        asked.items.map(({ params }) => params.message),
        ['Step 1: What is your name?', 'Step 2: What is your favorite color?'],
      );
    });

    test('a prompt may ask as well', async (t) => {
      const { client, asked } = await open(t);
      const { messages } = await client.getPrompt({ name: 'test_input_required_result_prompt' });
      assert.equal(messages[0].content.text, 'Use this context: Ada');
      assert.equal(asked.items.length, 1);
    });

    for (const [tool, args, page, said] of [
      ['sign_in', {}, 'asked', 'accept'],
      ['needs_sign_in', { id: where }, where, 'signed in'],
    ]) {
      test(`${tool} sends the user to a page`, async (t) => {
        const { client, asked } = await open(t);
        assert.equal(text(await call(client, tool, { ...args })), said);
        assert.deepEqual(
          asked.items.map(({ method, params: { mode, url } }) => [method, mode, url]),
          [['elicitation/create', 'url', `https://example.com/sign-in/${page}`]],
        );
      });
    }

    test('the server sees what this client can be asked, and no more', async (t) => {
      const { client, asked } = await open(t, { capabilities: { sampling: {} } });
      assert.equal(text(await call(client, 'test_input_required_result_capabilities')), '1 answers');
      assert.deepEqual(
        asked.items.map(({ method }) => method),
        ['sampling/createMessage'],
      );
    });

    test('calls side by side get the answers to their own questions', async (t) => {
      const { client, asked } = await open(t);
      const files = ['a', 'b', 'c', 'd', 'e'];
      client.setRequestHandler('elicitation/create', ({ params }) => {
        asked.push(params.message);
        return { action: 'accept', content: { confirm: /Delete [ace]\?/.test(params.message) } };
      });
      const done = await Promise.all(files.map((filename) => call(client, 'confirm_delete', { filename })));
      assert.deepEqual(done.map(text), ['deleted a', 'kept b', 'deleted c', 'kept d', 'deleted e']);
      assert.equal(asked.items.length, files.length);
    });
  });

  test(`progress comes on the call's own stream, ${where}`, async (t) => {
    const { client } = await open(t);
    const progress = [];
    await call(client, 'test_tool_with_progress', {}, { onprogress: (step) => progress.push(step) });
    assert.deepEqual(
      progress.map(({ progress, total }) => [progress, total]),
      [0, 50, 100].map((step) => [step, 100]),
    );
  });

  test(`a call that the client gives up is cancelled at the server, ${where}`, async (t) => {
    const { client } = await open(t);
    const given = new AbortController();
    const args = { seconds: 60, label: t.fullName };
    const hanging = assert.rejects(call(client, 'slow_compute', args, { signal: given.signal }));
    await call(client, 'wait_until', { label: t.fullName, what: 'started' });
    given.abort();
    await hanging;
    await call(client, 'wait_until', { label: t.fullName, what: 'aborted' });
  });

  test(`list changes are told to those who listen for them, ${where}`, async (t) => {
    // It can be asked nothing, so its calls share a process with the subscription.
    const { client } = await open(t, { capabilities: {} });
    const told = new Inbox();
    for (const list of ['tools', 'prompts']) {
      client.setNotificationHandler(`notifications/${list}/list_changed`, () => told.push(list));
    }
    const subscription = await client.listen({ promptsListChanged: true });
    await call(client, 'test_trigger_tool_change');
    await call(client, 'test_trigger_prompt_change');
    assert.deepEqual(await told.reach(1), ['prompts']);
    await subscription.close();
  });
}

test('log messages come at the level that the call named, and not without one', async (t) => {
  const { client } = await connect(t, house.gate.url);
  const told = new Inbox();
  client.setNotificationHandler('notifications/message', ({ params }) => told.push(params));
  await call(client, 'test_logging_tool');
  const logged = {
    name: 'test_logging_tool',
    arguments: {},
    _meta: { 'io.modelcontextprotocol/logLevel': 'info' },
  };
  await client.callTool(logged);
  assert.deepEqual(await told.reach(1), [{ level: 'info', data: 'logged' }]);
  assert.equal(told.items.length, 1);
});

test('methods that the newer generation does not have are refused', async (t) => {
  const { client } = await connect(t, house.gate.url);
  const post = async (method) => {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const response = await fetch(house.gate.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': method,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { _meta } }),
    });
    return [response.status, (await response.json()).error.code];
  };
  for (const method of [
    'initialize',
    'ping',
    'logging/setLevel',
    'resources/subscribe',
    'tasks/list',
    'tasks/result',
  ]) {
    assert.deepEqual(await post(method), [404, METHOD_NOT_FOUND], method);
  }
  assert.equal(text(await call(client, 'greet', { name: 'Ada' })), 'Hello, Ada!');
});

test('no session id is handed out, and none is needed', async (t) => {
  const seen = [];
  const transport = http(house.gate.url, {
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      seen.push([init?.method, response.headers.get('mcp-session-id')]);
      return response;
    },
  });
  const { client } = await connect(t, transport);
  await call(client, 'greet', { name: 'Ada' });
  assert.ok(seen.length >= 2);
  for (const exchange of seen) assert.deepEqual(exchange, ['POST', null]);
});
