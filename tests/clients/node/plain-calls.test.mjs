// Calls that ask for no task go through taskgate as if it were not there.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { EmptyResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { answering, answerQuestions, call, counters, listAll, oneMore, outcome } from './calls.mjs';
import { connect, startServer, startTaskgate } from './kit.mjs';

const servers = {
  'a server with JSON answers': { flags: ['--json'], asks: true },
  'a server with SSE answers': { flags: [], asks: true, progress: true },
  // Such a server cannot ask: the answer would reach another instance of it.
  'a server without sessions': { flags: ['--stateless'], progress: true },
};

for (const [kind, { flags, asks, progress }] of Object.entries(servers)) {
  describe(`plain calls in front of ${kind}`, () => {
    let server;
    let gate;
    before(async () => {
      server = await startServer('plain-server.mjs', ...flags);
      gate = await startTaskgate('--upstream', server.url);
    });
    after(async () => {
      assert.equal(await gate?.stop(), 0, 'taskgate ends cleanly');
      await server?.stop();
    });

    test('results and errors are the same as without taskgate, and make no tasks', async (t) => {
      const direct = await connect(t, server.url);
      const client = await connect(t, gate.url);
      for (const [name, args] of [
        ['echo', { text: 'grüße 🚪' }],
        ['slow', { ms: 10 }],
        ['fail', { text: 'the disk is full' }],
        ['throw', { text: 'the disk is gone' }],
        ['ask', { question: 'Who?' }],
        ['no-such-tool', {}],
      ]) {
        const expected = await outcome(call(direct, name, args));
        assert.deepEqual(await outcome(call(client, name, args)), expected, name);
      }
      const unknown = (client) => outcome(client.request({ method: 'no/such' }, EmptyResultSchema));
      assert.deepEqual(await unknown(client), await unknown(direct));
      assert.deepEqual(await client.ping(), await direct.ping());
      assert.deepEqual(await listAll(client), []);
    });

    test('cancelling a call aborts it at the server', async (t) => {
      const client = await connect(t, gate.url);
      const seen = await counters(client);
      const cancel = new AbortController();
      const hanging = outcome(call(client, 'hang', {}, { signal: cancel.signal }));
      await oneMore(client, seen, 'hang.started');
      cancel.abort('no longer needed');
      assert.match((await hanging).error.message, /no longer needed/);
      await oneMore(client, seen, 'cancelled');
      // Without a session the server cannot tell which call is meant.
      if (!flags.includes('--stateless')) await oneMore(client, seen, 'hang.aborted');
    });

    if (progress) {
      test('progress reaches the client that asked, under its own token', async (t) => {
        // Both clients number their requests from the same start, so their tokens are the same.
        const clients = [await connect(t, gate.url), await connect(t, gate.url)];
        const reports = await Promise.all(
          clients.map(async (client, index) => {
            const got = [];
            const steps = 3 + index;
            await call(client, 'slow', { ms: 60, steps }, { onprogress: (report) => got.push(report) });
            return got;
          }),
        );
        const expected = (total) =>
          Array.from({ length: total }, (_, index) => ({ progress: index + 1, total }));
        assert.deepEqual(reports, [expected(3), expected(4)]);
      });
    }

    if (asks) {
      test('the server asks the user and the model within a call', async (t) => {
        const client = await connect(t, gate.url, answering);
        const asked = answerQuestions(client, { name: 'Ada' });
        // With JSON answers the questions come on the GET stream, which has to be open.
        await counters(client, 'streams', 1);

        const reports = [];
        const onprogress = (report) => reports.push(report);
        const answer = await call(client, 'ask', { question: 'Who is there?' }, { onprogress });
        assert.deepEqual(answer, { content: [{ type: 'text', text: 'accept: Ada' }] });
        assert.deepEqual(reports, [{ progress: 1, total: 2 }]);

        const sampled = await call(client, 'sample', { prompt: 'Hello?' });
        assert.deepEqual(sampled, { content: [{ type: 'text', text: 'test-model: an answer' }] });

        const [elicitation, sampling] = asked;
        assert.equal(elicitation.message, 'Who is there?');
        assert.deepEqual(elicitation.requestedSchema, {
          type: 'object',
          properties: { name: { type: 'string' } },
          required: ['name'],
        });
        assert.deepEqual(sampling.messages, [
          { role: 'user', content: { type: 'text', text: 'Hello?' } },
        ]);
      });
    }
  });
}
