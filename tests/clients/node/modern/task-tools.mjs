// Tools that the suite's tasks scenarios call, of a server that knows nothing of tasks.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { note, noted } from './notes.mjs';

const text = (value) => ({ type: 'text', text: value });
const schemaOf = (properties) => ({ type: 'object', properties });

// Each question is one `elicitation/create` that belongs to the call.
export const elicit = (message, properties, { server, extra }) =>
  server.elicitInput(
    {
      mode: 'form',
      message,
      requestedSchema: { type: 'object', properties, required: Object.keys(properties) },
    },
    { relatedRequestId: extra.requestId },
  );

const NAME = { name: { type: 'string' } };
const CONFIRM = { confirm: { type: 'boolean' } };

// The suite expects a task from a call of one second, which is the default of `task_after` too.
const BEYOND_TASK_AFTER_MS = 250;

export const taskTools = {
  greet: {
    description: 'Greets at once.',
    inputSchema: schemaOf(NAME),
    call: ({ name }) => ({ content: [text(`Hello, ${name}!`)] }),
  },

  slow_compute: {
    description: 'Takes some seconds.',
    inputSchema: schemaOf({ seconds: { type: 'number' }, label: { type: 'string' } }),
    async call({ seconds, label }, { extra }) {
      note(`${label} started`);
      extra.signal.addEventListener('abort', () => note(`${label} aborted`));
      if (seconds > 0) {
        await sleep(seconds * 1000 + BEYOND_TASK_AFTER_MS, undefined, { signal: extra.signal });
      }
      note(`${label} finished`);
      return { content: [text(`computed ${label} for ${seconds} s`)] };
    },
  },

  wait_until: {
    description: 'Waits until a call of slow_compute with this label has started, finished or aborted.',
    inputSchema: schemaOf({ label: { type: 'string' }, what: { type: 'string' } }),
    async call({ label, what }, { extra }) {
      await noted(`${label} ${what}`, extra.signal);
      return { content: [text(`${label} ${what}`)] };
    },
  },

  failing_job: {
    description: 'Fails after a second, as tools fail.',
    async call(_, { extra }) {
      await sleep(1000, undefined, { signal: extra.signal });
      return { isError: true, content: [text('the job has failed')] };
    },
  },

  protocol_error_job: {
    description: 'Ends with a JSON-RPC error.',
    async call() {
      await sleep(100);
      throw Object.assign(new Error('the job is gone'), { code: 4050, data: { reason: 'gone' } });
    },
  },

  confirm_delete: {
    description: 'Asks before it deletes.',
    inputSchema: schemaOf({ filename: { type: 'string' } }),
    async call({ filename }, context) {
      const { action, content } = await elicit(`Delete ${filename}?`, CONFIRM, context);
      const done = action === 'accept' && content?.confirm ? 'deleted' : 'kept';
      return { content: [text(`${done} ${filename}`)] };
    },
  },

  multi_input: {
    description: 'Asks two questions at once.',
    async call(_, context) {
      const [first, second] = await Promise.all([
        elicit('Who is there?', NAME, context),
        elicit('Go on?', CONFIRM, context),
      ]);
      return { content: [text(`${first.content?.name}, ${second.content?.confirm}`)] };
    },
  },

  test_tool_with_task: {
    description: 'Asks for a name at once, and then takes a second.',
    async call(_, context) {
      const { content } = await elicit('What is your name?', { name: { type: 'string' } }, context);
      await sleep(1000, undefined, { signal: context.extra.signal });
      return { content: [text(`Hello, ${content?.name}!`)] };
    },
  },
};

const TOOLS = new URL('../../task-tools.toml', import.meta.url);

/** What taskgate is told of these tools, of a server that `target` names: its `url` or `command`. */
export const taskToolsConfig = (target) => `
  [tasks]
  poll_interval = "50ms"
  [[upstream]]
  ${target}
  ${readFileSync(TOOLS, 'utf8')}
`;
