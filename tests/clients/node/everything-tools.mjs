// Tools of the server for the conformance suite; their names and answers are the suite's.
import { setTimeout as sleep } from 'node:timers/promises';
import { PNG, WAV } from './everything-content.mjs';

const text = (value) => ({ type: 'text', text: value });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const resource = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });
const answers = (...content) => () => ({ content });

const elicits = (requestedSchema, message = 'Please answer.') =>
  async function (_, { server, extra }) {
    const { action, content } = await server.elicitInput(
      { message, requestedSchema },
      { relatedRequestId: extra.requestId },
    );
    return {
      content: [text(`Elicitation completed: action=${action}, content=${JSON.stringify(content)}`)],
    };
  };

export const tools = {
  test_simple_text: {
    description: 'Answers with a text.',
    call: answers(text('This is a simple text response for testing.')),
  },

  test_image_content: { description: 'Answers with an image.', call: answers(image) },

  test_audio_content: {
    description: 'Answers with a sound.',
    call: answers({ type: 'audio', data: WAV, mimeType: 'audio/wav' }),
  },

  test_embedded_resource: {
    description: 'Answers with a resource.',
    call: answers(
      resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.'),
    ),
  },

  test_multiple_content_types: {
    description: 'Answers with a text, an image and a resource.',
    call: answers(
      text('Multiple content types test:'),
      image,
      resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ),
  },

  test_error_handling: {
    description: 'Always fails.',
    call: () => ({
      isError: true,
      content: [text('This tool intentionally returns an error for testing')],
    }),
  },

  test_tool_with_logging: {
    description: 'Logs while it runs.',
    async call(_, { extra }) {
      const log = (data) =>
        extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
      await log('Tool execution started');
      await sleep(50);
      await log('Tool processing data');
      await sleep(50);
      await log('Tool execution completed');
      return { content: [text('Logged three messages.')] };
    },
  },

  test_tool_with_progress: {
    description: 'Reports progress while it runs.',
    async call(_, { extra }) {
      const progressToken = extra._meta?.progressToken;
      for (const progress of [0, 50, 100]) {
        if (progress > 0) await sleep(50);
        if (progressToken === undefined) continue;
        await extra.sendNotification({
          method: 'notifications/progress',
          params: { progressToken, progress, total: 100 },
        });
      }
      // The SDK's clients lose progress that they read together with the answer.
      await sleep(50);
      return { content: [text('Reported progress.')] };
    },
  },

  test_sampling: {
    description: 'Asks the client for a completion.',
    inputSchema: { type: 'object', properties: { prompt: { type: 'string' } }, required: ['prompt'] },
    async call({ prompt }, { server, extra }) {
      const answer = await server.createMessage(
        { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 },
        { relatedRequestId: extra.requestId },
      );
      return { content: [text(`LLM response: ${answer.content.text}`)] };
    },
  },

  test_elicitation: {
    description: 'Asks the user for a name and an address.',
    inputSchema: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
    call({ message }, context) {
      const requestedSchema = {
        type: 'object',
        properties: {
          username: { type: 'string', description: "User's response" },
          email: { type: 'string', description: "User's email address" },
        },
        required: ['username', 'email'],
      };
      return elicits(requestedSchema, message)({}, context);
    },
  },

  test_elicitation_sep1034_defaults: {
    description: 'Asks the user with a default for every kind of field.',
    call: elicits({
      type: 'object',
      properties: {
        name: { type: 'string', default: 'John Doe' },
        age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 },
        status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', default: true },
      },
    }),
  },

  test_elicitation_sep1330_enums: {
    description: 'Asks the user with every kind of choice.',
    call: elicits({
      type: 'object',
      properties: {
        untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
        titledSingle: { type: 'string', oneOf: titled('value', 'Option') },
        legacyEnum: {
          type: 'string',
          enum: ['opt1', 'opt2', 'opt3'],
          enumNames: ['Option One', 'Option Two', 'Option Three'],
        },
        untitledMulti: {
          type: 'array',
          items: { type: 'string', enum: ['option1', 'option2', 'option3'] },
        },
        titledMulti: { type: 'array', items: { anyOf: titled('value', 'Choice') } },
      },
    }),
  },

  test_reconnection: {
    description: 'Ends its stream before it answers, so that the client has to resume it.',
    async call(_, { extra }) {
      extra.closeSSEStream?.();
      await sleep(200);
      return { content: [text('Answered after the stream was resumed.')] };
    },
  },

  json_schema_2020_12_tool: {
    description: 'Has an input schema in the vocabulary of 2020-12.',
    inputSchema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      $defs: {
        address: {
          $anchor: 'addressDef',
          type: 'object',
          properties: { street: { type: 'string' }, city: { type: 'string' } },
        },
      },
      properties: {
        name: { type: 'string' },
        address: { $ref: '#/$defs/address' },
        contactMethod: { type: 'string', enum: ['phone', 'email'] },
        phone: { type: 'string' },
        email: { type: 'string' },
      },
      allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
      if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
      then: { required: ['phone'] },
      else: { required: ['email'] },
      additionalProperties: false,
    },
    call: answers(text('Called.')),
  },
};

function titled(value, title) {
  return ['First', 'Second', 'Third'].map((ordinal, index) => ({
    const: `${value}${index + 1}`,
    title: `${ordinal} ${title}`,
  }));
}
