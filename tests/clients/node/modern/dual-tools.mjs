// The tools and prompts that ask, as a server of the newer generation says it: a question is a result, and
// its answer comes with the next call. The SDK turns them into requests of the server for clients of the
// older generation.
import { randomBytes } from 'node:crypto';
import { acceptedContent, createRequestStateCodec, inputRequired } from '@modelcontextprotocol/server';

const text = (value) => ({ type: 'text', text: value });
const says = (value) => ({ content: [text(value)] });
const formOf = (properties) => ({ type: 'object', properties, required: Object.keys(properties) });
const NAME = formOf({ name: { type: 'string' } });

const askName = (message = 'What is your name?') => inputRequired.elicit({ message, requestedSchema: NAME });
const sample = (question) =>
  inputRequired.createMessage({ messages: [{ role: 'user', content: text(question) }], maxTokens: 100 });

export const states = createRequestStateCodec({ key: randomBytes(32) });

/** A tool that asks `requests` until all are answered, and then says what `say` makes of the answers. */
const asks = (description, requests, say, { sealed = false } = {}) => ({
  description,
  async call(_, { mcpReq }) {
    const answers = mcpReq.inputResponses ?? {};
    const missing = Object.keys(requests).filter((key) => answers[key] === undefined);
    if (missing.length === 0 && (!sealed || mcpReq.requestState() !== undefined)) return says(say(answers));
    return inputRequired({
      inputRequests: Object.fromEntries(missing.map((key) => [key, requests[key]])),
      ...(sealed ? { requestState: await states.mint({ description }) } : {}),
    });
  },
});

const greeting = (answers) => `Hello, ${acceptedContent(answers, 'user_name')?.name}!`;
const elicitation = asks('Asks the user for a name.', { user_name: askName() }, greeting);

export const askingTools = {
  test_input_required_result_elicitation: elicitation,
  test_streaming_elicitation: elicitation,

  test_input_required_result_sampling: asks(
    'Asks the client for a completion.',
    { capital_question: sample('What is the capital of France?') },
    ({ capital_question }) => capital_question.content.text,
  ),

  test_input_required_result_list_roots: asks(
    'Asks the client for its roots.',
    { client_roots: inputRequired.listRoots() },
    ({ client_roots }) => client_roots.roots.map(({ uri }) => uri).join(' '),
  ),

  test_input_required_result_request_state: asks(
    'Asks the user for a name, and remembers that it did.',
    { user_name: askName() },
    () => 'state-ok',
    { sealed: true },
  ),

  test_input_required_result_tampered_state: asks(
    'Asks for an agreement, and remembers that it did.',
    {
      agreed: inputRequired.elicit({
        message: 'Is it well?',
        requestedSchema: formOf({ ok: { type: 'boolean' } }),
      }),
    },
    () => 'agreed',
    { sealed: true },
  ),

  test_input_required_result_multiple_inputs: asks(
    'Asks three questions at once.',
    {
      user_name: askName(),
      greeting: sample('Generate a greeting'),
      client_roots: inputRequired.listRoots(),
    },
    (answers) =>
      `${greeting(answers)} ${answers.greeting.content.text} ${answers.client_roots.roots[0]?.uri}`,
    { sealed: true },
  ),

  test_input_required_result_multi_round: {
    description: 'Asks one question after the other.',
    async call(_, { mcpReq }) {
      const name = acceptedContent(mcpReq.inputResponses, 'step1')?.name ?? mcpReq.requestState()?.name;
      const color = acceptedContent(mcpReq.inputResponses, 'step2')?.color;
      if (name !== undefined && color !== undefined) return says(`${name} likes ${color}`);
      const step2 = inputRequired.elicit({
        message: 'Step 2: What is your favorite color?',
        requestedSchema: formOf({ color: { type: 'string' } }),
      });
      return inputRequired({
        inputRequests: name === undefined ? { step1: askName('Step 1: What is your name?') } : { step2 },
        requestState: await states.mint({ name }),
      });
    },
  },

  test_input_required_result_capabilities: {
    description: 'Asks what the client can be asked.',
    call(_, { mcpReq, capabilities }) {
      const answered = Object.keys(mcpReq.inputResponses ?? {}).length;
      if (answered > 0) return says(`${answered} answers`);
      return inputRequired({
        inputRequests: {
          ...(capabilities.sampling ? { capital_question: sample('What is the capital of France?') } : {}),
          ...(capabilities.elicitation ? { user_name: askName() } : {}),
        },
      });
    },
  },

  // The SDK refuses it with -32021 where the client cannot be asked.
  test_missing_capability: asks(
    'Asks the client for a completion in any case.',
    { anything: sample('Anything') },
    ({ anything }) => anything.content.text,
  ),

  test_logging_tool: {
    description: 'Logs while it runs.',
    async call(_, { mcpReq }) {
      await mcpReq.log('info', 'logged');
      return says('Logged a message.');
    },
  },
};

const CONFIRM = formOf({ confirm: { type: 'boolean' } });

/** The tools of the tasks scenarios that ask; the others are those of the older generation. */
export const askingTaskTools = {
  confirm_delete: {
    description: 'Asks before it deletes.',
    inputSchema: { type: 'object', properties: { filename: { type: 'string' } } },
    call({ filename }, { mcpReq }) {
      if (mcpReq.inputResponses === undefined) {
        const question = inputRequired.elicit({ message: `Delete ${filename}?`, requestedSchema: CONFIRM });
        return inputRequired({ inputRequests: { confirm: question } });
      }
      const confirmed = acceptedContent(mcpReq.inputResponses, 'confirm')?.confirm;
      return says(`${confirmed ? 'deleted' : 'kept'} ${filename}`);
    },
  },
  multi_input: asks(
    'Asks two questions at once.',
    {
      name: inputRequired.elicit({ message: 'Who is there?', requestedSchema: NAME }),
      confirm: inputRequired.elicit({ message: 'Go on?', requestedSchema: CONFIRM }),
    },
    (answers) => `${acceptedContent(answers, 'name')?.name}, ${acceptedContent(answers, 'confirm')?.confirm}`,
  ),
  test_tool_with_task: {
    description: 'Asks for a name at once, and then takes a second.',
    async call(_, { mcpReq }) {
      const given = acceptedContent(mcpReq.inputResponses, 'user_name');
      if (given === undefined) return inputRequired({ inputRequests: { user_name: askName() } });
      await new Promise((resolve) => setTimeout(resolve, 1000));
      return says(`Hello, ${given.name}!`);
    },
  },
};

export const askingPrompts = {
  test_input_required_result_prompt: {
    description: 'A prompt that asks for its context.',
    messages(_, { mcpReq }) {
      const given = acceptedContent(mcpReq.inputResponses, 'user_context');
      if (given !== undefined) return [{ role: 'user', content: text(`Use this context: ${given.context}`) }];
      const requestedSchema = formOf({ context: { type: 'string' } });
      const question = inputRequired.elicit({
        message: 'What context should the prompt use?',
        requestedSchema,
      });
      return inputRequired({ inputRequests: { user_context: question } });
    },
  },
};
