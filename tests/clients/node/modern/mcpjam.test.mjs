// MCPJam's command line, which checks the shape of whatever tells of tasks, in both generations.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, test } from 'node:test';
import { configFile, startTaskgateWith, TASKGATE } from '../kit.mjs';
import { inFrontOfLegacyServer } from './kit.mjs';
import { taskToolsConfig } from './task-tools.mjs';

const CLI = process.env.MCPJAM;
const skip = CLI ? false : 'MCPJAM names no command line; scripts/mcpjam installs one where it can';
const house = inFrontOfLegacyServer();

/** The code that a command ends with, and what it says: `said` where that is JSON. */
function mcpjam(...args) {
  const options = { env: { ...process.env, DO_NOT_TRACK: '1' }, timeout: 60_000 };
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [CLI, ...args], options, (error, stdout, stderr) => {
      try {
        resolve({ code: error ? error.code : 0, said: JSON.parse(stdout) });
      } catch {
        reject(new Error(`${args.join(' ')}: ${error}\n${stdout}\n${stderr}`));
      }
    });
  });
}

const slow = (label, seconds) => ['--tool-name', 'slow_compute', '--tool-args', JSON.stringify({ seconds, label })];

// What has to be looked at: a check that does not apply is skipped.
const IN_BOTH = ['wire-resolvable', 'result-type-discipline', 'ttl-shape', 'inline-result', 'declaration-hygiene'];
const OF_EXTENSION = [
  'undeclared-creation-refused',
  'status-payload-shape',
  'ttl-integer-shape',
  'invalid-task-id-rejected',
  'undeclared-capability-rejected',
  'undeclared-capability-names-requirements',
  'cancel-ack-shape',
];
const CHECKS = {
  'sessions over HTTP': IN_BOTH,
  stdio: [...IN_BOTH, ...OF_EXTENSION],
  HTTP: [...IN_BOTH, ...OF_EXTENSION, 'mcp-name-routing'],
};

/** Runs every check of tasks that applies, and finds nothing wrong. */
async function conforms(target, wire, over) {
  const { code, said } = await mcpjam('tasks', 'conformance', ...target, ...slow(`mcpjam over ${over}`, 2));
  const failed = said.checks.filter(({ status }) => status === 'failed');
  assert.deepEqual({ code, failed }, { code: 0, failed: [] });
  const passed = said.checks.filter(({ status }) => status === 'passed');
  const missing = CHECKS[over].filter((check) => !passed.some(({ id }) => id === `tasks-${check}`));
  assert.deepEqual(missing, []);
  assert.equal(passed.find(({ id }) => id === 'tasks-wire-resolvable').details.wire, wire);
}

describe('mcpjam', { skip }, () => {
  test('finds nothing wrong with the tasks of 2026-07-28', () =>
    conforms(['--url', house.gate.url], 'extension', 'HTTP'));

  test('finds nothing wrong with those of taskgate stdio', async (t) => {
    const { file, remove } = configFile(taskToolsConfig(`url = ${JSON.stringify(house.server.url)}`));
    t.after(remove);
    const args = ['stdio', '--config', file].map((arg) => `--command-args=${arg}`);
    await conforms(['--transport', 'stdio', '--command', TASKGATE, ...args], 'extension', 'stdio');
  });

  test('finds nothing wrong with the tasks of 2025-11-25', async (t) => {
    const gate = await startTaskgateWith(taskToolsConfig(`url = ${JSON.stringify(house.server.url)}\n  modern = false`));
    t.after(() => gate.stop());
    await conforms(['--url', gate.url], 'legacy', 'sessions over HTTP');
  });

  test('creates a task, reads it, watches it to its end and cancels another', async () => {
    const target = ['--url', house.gate.url, '--wire', 'extension'];
    const create = async (label, seconds) =>
      (await mcpjam('tools', 'call', ...target, ...slow(label, seconds), '--task')).said;
    const about = ({ task }, verb) => mcpjam('tasks', verb, ...target, '--task-id', task.taskId);

    const created = await create('mcpjam watches', 2);
    assert.deepEqual([created.status, created.task.status], ['task_created', 'working']);
    assert.equal((await about(created, 'get')).said.task.taskId, created.task.taskId);
    const watched = await about(created, 'watch');
    assert.equal(watched.code, 0);
    assert.match(JSON.stringify(watched.said), /computed mcpjam watches/);

    const unwanted = await create('mcpjam cancels', 60);
    assert.equal((await about(unwanted, 'cancel')).code, 0);
    assert.equal((await about(unwanted, 'get')).said.task.status, 'cancelled');
  });
});
