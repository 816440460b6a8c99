// What the suite at 2026-07-28 asks of a server beside what it asked before, as far as a server of the older
// generation can say it: questions are requests of the server, and there is no request state.
import { setTimeout as sleep } from 'node:timers/promises';
import { UrlElicitationRequiredError } from '@modelcontextprotocol/sdk/types.js';
import { isNoted, note } from './notes.mjs';
import { elicit } from './task-tools.mjs';

const text = (value) => ({ type: 'text', text: value });
const NAME = { name: { type: 'string' } };

const sample = (question, { server, extra }) =>
  server.createMessage(
    { messages: [{ role: 'user', content: text(question) }], maxTokens: 100 },
    { relatedRequestId: extra.requestId },
  );
const roots = ({ server, extra }) => server.listRoots(undefined, { relatedRequestId: extra.requestId });

/** A tool that asks with `question`, and answers with what `say` makes of the answer. */
const asks = (description, question, say) => ({
  description,
  call: async (_, context) => ({ content: [text(say(await question(context)))] }),
});

const askName = (context) => elicit('What is your name?', NAME, context);
const askAgreement = (context) => elicit('Is it well?', { ok: { type: 'boolean' } }, context);
const greeting = ({ content }) => `Hello, ${content?.name}!`;

export const askingTools = {
  test_input_required_result_elicitation: asks('Asks the user for a name.', askName, greeting),

  test_input_required_result_sampling: asks(
    'Asks the client for a completion.',
    (context) => sample('What is the capital of France?', context),
    ({ content }) => content.text,
  ),

  test_input_required_result_list_roots: asks('Asks the client for its roots.', roots, ({ roots }) =>
    roots.map(({ uri }) => uri).join(' '),
  ),

  test_input_required_result_request_state: asks('Asks for an agreement.', askAgreement, () => 'state-ok'),

  test_input_required_result_multiple_inputs: asks(
    'Asks three questions at once.',
    (context) => Promise.all([askName(context), sample('Generate a greeting', context), roots(context)]),
    ([name, sampled, { roots }]) => `${greeting(name)} ${sampled.content.text} ${roots[0]?.uri}`,
  ),

  test_input_required_result_multi_round: asks(
    'Asks one question after the other.',
    async (context) => [
      await elicit('Step 1: What is your name?', NAME, context),
      await elicit('Step 2: What is your favorite color?', { color: { type: 'string' } }, context),
    ],
    ([first, second]) => `${first.content?.name} likes ${second.content?.color}`,
  ),

  test_input_required_result_tampered_state: asks('Asks for an agreement.', askAgreement, ({ content }) =>
    String(content?.ok),
  ),

  test_input_required_result_capabilities: asks(
    'Asks what the client can be asked.',
    (context) => {
      const can = context.server.getClientCapabilities();
      return Promise.all([
        ...(can.sampling ? [sample('What is the capital of France?', context)] : []),
        ...(can.elicitation ? [askName(context)] : []),
      ]);
    },
    (answers) => `${answers.length} answers`,
  ),

  // The SDK sends this to every client, whatever it can be asked.
  test_missing_capability: asks(
    'Asks the client for a completion in any case.',
    (context) => sample('Anything', context),
    ({ content }) => content.text,
  ),

  test_streaming_elicitation: asks('Asks the user for a name.', askName, greeting),

  test_logging_tool: {
    description: 'Logs while it runs.',
    async call(_, { extra }) {
      const params = { level: 'info', data: 'logged' };
      await extra.sendNotification({ method: 'notifications/message', params });
      return { content: [text('Logged a message.')] };
    },
  },
};

const signIn = (id) => ({
  mode: 'url',
  message: 'Please sign in.',
  url: `https://example.com/sign-in/${id}`,
  elicitationId: id,
});

/** Tools that send the user to a page: by a question, and by an error before anything has run. */
export const signInTools = {
  sign_in: asks(
    'Asks the user to sign in.',
    ({ server, extra }) => server.elicitInput(signIn('asked'), { relatedRequestId: extra.requestId }),
    ({ action }) => action,
  ),

  needs_sign_in: {
    description: 'Refuses its first call with this id until the user has signed in.',
    inputSchema: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] },
    call({ id }) {
      if (isNoted(`sign in ${id}`)) return { content: [text('signed in')] };
      note(`sign in ${id}`);
      throw new UrlElicitationRequiredError([signIn(id)], 'sign in first');
    },
  },
};

/** Tools that tell every session in `sessions` of a change. */
export const changingTools = (sessions) => ({
  test_trigger_tool_change: changing(() => sessions.forEach((server) => server.sendToolListChanged())),
  test_trigger_prompt_change: changing(() => sessions.forEach((server) => server.sendPromptListChanged())),
});

const changing = (tell) => ({
  description: 'Tells that a list has changed.',
  async call() {
    tell();
    await sleep(1);
    return { content: [text('Told.')] };
  },
});

export const askingPrompts = {
  test_input_required_result_prompt: {
    description: 'A prompt that asks for its context.',
    async messages(_, context) {
      const { content } = await elicit(
        'What context should the prompt use?',
        { context: { type: 'string' } },
        context,
      );
      return [{ role: 'user', content: text(`Use this context: ${content?.context}`) }];
    },
  },
};
