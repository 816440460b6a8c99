// Multiple round trips, written by hand: what a client may do wrong with a retry, and what it gets for it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startServer, startTaskgateWith } from '../kit.mjs';
import { answers } from './kit.mjs';
import { taskToolsConfig } from './task-tools.mjs';
import { Wire } from './wire.mjs';

const INVALID_PARAMS = -32602;
const ASKED = { elicitation: {}, sampling: {}, roots: {} };
const ONE = { name: 'confirm_delete', arguments: { filename: 'a.txt' } };
const TWO = { name: 'multi_input', arguments: {} };
const house = {};

before(async () => {
  house.server = await startServer('modern/legacy-server.mjs');
  const config = taskToolsConfig(`url = ${JSON.stringify(house.server.url)}`);
  house.gate = await startTaskgateWith(`
    [auth]
    mode = "header"
    header = "x-user"
    trusted_peers = ["127.0.0.1"]
    ${config}
  `);
});
after(async () => {
  const code = await house.gate?.stop();
  await house.server?.stop();
  assert.equal(code, 0, 'taskgate ends cleanly');
});

const client = (user = 'ada') =>
  new Wire(house.gate.url, { capabilities: ASKED, headers: { 'x-user': user } });

/** Sends the call; gives the questions that it is answered with. */
async function asks(wire, call) {
  const result = await wire.request('tools/call', call);
  assert.equal(result.resultType, 'input_required');
  assert.equal(typeof result.requestState, 'string');
  assert.notEqual(Object.keys(result.inputRequests).length, 0);
  return result;
}

const answered = (inputRequests) =>
  Object.fromEntries(
    Object.entries(inputRequests).map(([key, { method, params }]) => [key, answers[method](params ?? {})]),
  );

const retry = (call, { inputRequests, requestState }) => ({
  ...call,
  inputResponses: answered(inputRequests),
  requestState,
});

const said = ({ content }) => content[0].text;

async function refused(wire, call) {
  const { error } = await wire.exchange('tools/call', call);
  assert.equal(error?.code, INVALID_PARAMS);
  return error.message;
}

test('a retry with all answers goes on with the very call that asked', async () => {
  const wire = client();
  const asked = await asks(wire, ONE);
  assert.equal(said(await wire.request('tools/call', retry(ONE, asked))), 'deleted a.txt');
});

test('a retry that lacks an answer is asked for what is missing, and no more', async () => {
  const wire = client();
  const asked = await asks(wire, TWO);
  const [[first, question], ...others] = Object.entries(asked.inputRequests);
  const partly = retry(TWO, { ...asked, inputRequests: { [first]: question } });
  const again = await asks(wire, partly);
  assert.deepEqual(
    Object.values(again.inputRequests),
    others.map(([, other]) => other),
  );
  assert.notEqual(again.requestState, asked.requestState);
  assert.equal(said(await wire.request('tools/call', retry(TWO, again))), 'Ada, true');
});

test('answers that were not asked for are passed over', async () => {
  const wire = client();
  const asked = await asks(wire, ONE);
  const call = retry(ONE, asked);
  call.inputResponses.unknown = { action: 'accept', content: { confirm: false } };
  assert.equal(said(await wire.request('tools/call', call)), 'deleted a.txt');
});

test('a state is good once, for its principal, its tool and its arguments; all else gets one answer', async () => {
  const wire = client();
  const asked = await asks(wire, ONE);
  const call = retry(ONE, asked);
  const { requestState } = asked;
  const other = { name: 'test_input_required_result_elicitation', arguments: {} };
  const prompt = { name: 'test_input_required_result_prompt', requestState, inputResponses: {} };
  const messages = new Set([
    await refused(client('eve'), call),
    await refused(wire, { ...call, arguments: { filename: 'b.txt' } }),
    await refused(wire, { ...call, ...other }),
    await refused(wire, { ...call, requestState: `${requestState}A` }),
    await refused(wire, { ...call, requestState: requestState.slice(1) }),
    await refused(wire, { ...call, requestState: '' }),
    (await wire.exchange('prompts/get', prompt)).error?.message,
  ]);
  // None of it has used the state up.
  assert.equal(said(await wire.request('tools/call', call)), 'deleted a.txt');
  messages.add(await refused(wire, call));
  assert.equal(messages.size, 1);
});

test('answers without a state are a new call, which asks', async () => {
  const wire = client();
  const call = { ...ONE, inputResponses: { confirm: { action: 'accept', content: { confirm: true } } } };
  const asked = await asks(wire, call);
  assert.equal(said(await wire.request('tools/call', retry(ONE, asked))), 'deleted a.txt');
});

test('a client is asked nothing that it did not declare on this very request', async () => {
  const wire = client();
  const asked = await asks(wire, TWO);
  const silent = new Wire(house.gate.url, { capabilities: {}, headers: { 'x-user': 'ada' } });
  const call = { name: 'test_input_required_result_multi_round', arguments: {} };
  const { result, error } = await silent.exchange('tools/call', call);
  assert.notEqual(result?.resultType, 'input_required');
  assert.ok(error !== undefined || result.isError);
  assert.equal(said(await wire.request('tools/call', retry(TWO, asked))), 'Ada, true');
});

test('clients that never come back leave room for those who do', async () => {
  const wire = client('fay');
  for (let left = 0; left < 20; left++) await asks(wire, ONE);
  const asked = await asks(wire, ONE);
  assert.equal(said(await wire.request('tools/call', retry(ONE, asked))), 'deleted a.txt');
});
