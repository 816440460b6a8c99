// Resources and prompts of the server for the conformance suite.

// A red pixel.
export const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
// A WAV file without samples.
export const WAV = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';

export const resources = {
  'test://static-text': {
    name: 'static text',
    description: 'A text that never changes.',
    mimeType: 'text/plain',
    text: 'This is the content of the static text resource.',
  },
  'test://static-binary': {
    name: 'static binary',
    description: 'An image that never changes.',
    mimeType: 'image/png',
    blob: PNG,
  },
  'test://watched-resource': {
    name: 'watched resource',
    description: 'A text that clients subscribe to.',
    mimeType: 'text/plain',
    text: 'Watched.',
  },
};

const TEMPLATE_URI = /^test:\/\/template\/([^/]+)\/data$/;

export const template = {
  entry: {
    uriTemplate: 'test://template/{id}/data',
    name: 'template',
    description: 'Data for an id.',
    mimeType: 'application/json',
  },
  read(uri) {
    const id = TEMPLATE_URI.exec(uri)?.[1];
    if (id === undefined) return undefined;
    const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { uri, mimeType: 'application/json', text };
  },
};

const user = (content) => ({ role: 'user', content });
const says = (text) => user({ type: 'text', text });
const required = (name) => ({ name, description: `The value of ${name}.`, required: true });

export const prompts = {
  test_simple_prompt: {
    description: 'A prompt without arguments.',
    messages: () => [says('This is a simple prompt for testing.')],
  },
  test_prompt_with_arguments: {
    description: 'A prompt with two arguments.',
    arguments: [required('arg1'), required('arg2')],
    messages: ({ arg1, arg2 }) => [says(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  },
  test_prompt_with_embedded_resource: {
    description: 'A prompt with a resource in it.',
    arguments: [required('resourceUri')],
    messages: ({ resourceUri }) => [
      user({
        type: 'resource',
        resource: {
          uri: resourceUri,
          mimeType: 'text/plain',
          text: 'Embedded resource content for testing.',
        },
      }),
      says('Please process the embedded resource above.'),
    ],
  },
  test_prompt_with_image: {
    description: 'A prompt with an image in it.',
    messages: () => [
      user({ type: 'image', data: PNG, mimeType: 'image/png' }),
      says('Please analyze the image above.'),
    ],
  },
};
