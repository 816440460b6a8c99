// MCPJam's command line, which checks the shape of whatever tells of tasks, in both generations.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, test } from 'node:test';
import { configFile, startTaskgateWith, TASKGATE } from '../kit.mjs';
import { inFrontOfLegacyServer } from './kit.mjs';
import { taskToolsConfig } from './task-tools.mjs';

const CLI = process.env.MCPJAM;
const skip = CLI ? false : 'the registry of npm has no @mcpjam/cli with tasks commands';
const house = inFrontOfLegacyServer();

/** What a command prints, and the code that it ends with. */
function mcpjam(...args) {
  const env = { ...process.env, DO_NOT_TRACK: '1' };
  return new Promise((resolve) => {
    execFile(process.execPath, [CLI, ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, stdout, said: JSON.parse(stdout || 'null'), stderr }),
    );
  });
}

const slow = (label) => ['--tool-name', 'slow_compute', '--tool-args', JSON.stringify({ seconds: 2, label })];

/** Runs every check of tasks that applies; nothing is wrong, and enough was looked at. */
async function conforms(target, wire, label) {
  const { code, said, stderr } = await mcpjam('tasks', 'conformance', ...target, ...slow(label));
  assert.ok(said, stderr);
  const failed = said.checks.filter(({ status }) => status === 'failed');
  assert.deepEqual({ code, failed }, { code: 0, failed: [] });
  const { details } = said.checks.find(({ id }) => id === 'tasks-wire-resolvable');
  assert.equal(details.wire, wire);
  const passed = said.checks.filter(({ status }) => status === 'passed').map(({ id }) => id);
  for (const id of ['tasks-result-type-discipline', 'tasks-ttl-shape', 'tasks-inline-result']) {
    assert.ok(passed.includes(id), `${id} is not among ${passed}`);
  }
}

describe('mcpjam', { skip }, () => {
  test('finds nothing wrong with the tasks of 2026-07-28', () =>
    conforms(['--url', house.gate.url], 'extension', 'mcpjam over HTTP'));

  test('finds nothing wrong with those of taskgate stdio', async (t) => {
    const { file, remove } = configFile(taskToolsConfig(`url = ${JSON.stringify(house.server.url)}`));
    t.after(remove);
    const args = ['stdio', '--config', file].map((arg) => `--command-args=${arg}`);
    await conforms(['--transport', 'stdio', '--command', TASKGATE, ...args], 'extension', 'mcpjam over stdio');
  });

  test('finds nothing wrong with the tasks of 2025-11-25', async (t) => {
    const gate = await startTaskgateWith(taskToolsConfig(`url = ${JSON.stringify(house.server.url)}\n  modern = false`));
    t.after(() => gate.stop());
    await conforms(['--url', gate.url], 'legacy', 'mcpjam in a session');
  });

  test('creates a task, reads it, watches it to its end and cancels another', async () => {
    const target = ['--url', house.gate.url, '--wire', 'extension'];
    const create = async (label) => (await mcpjam('tools', 'call', ...target, ...slow(label), '--task')).said;
    const about = ({ task }, verb) => mcpjam('tasks', verb, ...target, '--task-id', task.taskId);

    const created = await create('mcpjam watches');
    assert.deepEqual([created.status, created.task.status], ['task_created', 'working']);
    assert.equal((await about(created, 'get')).said.task.taskId, created.task.taskId);
    const watched = await about(created, 'watch');
    assert.deepEqual([watched.code, watched.stdout.includes('computed mcpjam watches')], [0, true]);

    const unwanted = await create('mcpjam cancels');
    assert.equal((await about(unwanted, 'cancel')).code, 0);
    assert.equal((await about(unwanted, 'get')).said.task.status, 'cancelled');
  });
});
