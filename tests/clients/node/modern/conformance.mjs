// Runs the official conformance suite at 2026-07-28: what the revision requires, and the scenarios of the
// tasks extension.
import { startServer, startTaskgateWith } from '../kit.mjs';
import { differences, runSuite, statuses } from '../suite.mjs';
import { taskToolsConfig } from './task-tools.mjs';

const REVISION = ['--requirements', '2026-07-28'];
const TASKS_SCENARIOS = [
  'tasks-lifecycle',
  'tasks-capability-negotiation',
  'tasks-wire-fields',
  'tasks-request-state-removal',
  'tasks-mrtr-input',
  'tasks-request-headers',
  'tasks-dispatch-and-envelope',
  'tasks-required-task-error',
  'tasks-mrtr-composition',
  'tasks-status-notifications',
];

// What the suite cannot say of any server yet.
const SKIPPED_BY_THE_SUITE = new Set(['tasks-status-notifications: tasks-status-notifications']);

// What a server of the older generation cannot express, however well it is bridged: the check, what it comes
// to, and why.
const BEYOND_A_LEGACY_SERVER = new Map(
  [
    {
      check: 'input-required-result-basic-elicitation: sep-2322-elicitation-incomplete',
      status: 'FAILURE',
      why: 'the suite looks for the key `user_name`, but a question of such a server has no name',
    },
    {
      check: 'input-required-result-ignore-extra-params: sep-2322-ignore-unexpected-params',
      status: 'WARNING',
      why: 'the suite answers what it was not asked; such a server does not take answers before it has asked',
    },
  ].map((entry) => [entry.check, entry]),
);

// The revision requires none of these: the tasks scenarios are judged by `tasksScenarios`, and no server here
// has a parameter that is a header too.
const NOT_REQUIRED = /^(tasks-|http-custom-header-server-validation)/;
const required = (checks) => new Map([...checks].filter(([key]) => !NOT_REQUIRED.test(key)));
const passes = (status) => status === 'SUCCESS' || status === 'INFO';

const parts = { dual: inFrontOfDualServer, legacy: inFrontOfLegacyServer };
const chosen = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(parts);
let faults = 0;
for (const part of chosen) faults += await parts[part]();
process.exitCode = faults === 0 ? 0 : 1;

async function inFrontOfDualServer() {
  return inFrontOf('dual-server.mjs', async (server, taskgate) => {
    const direct = required(await runSuite('a server of both generations directly', server, ...REVISION));
    const through = required(await runSuite('the same through taskgate', taskgate, ...REVISION));
    return unexpected(direct, new Map()) + differences(direct, through) + (await tasksScenarios(taskgate));
  });
}

async function inFrontOfLegacyServer() {
  return inFrontOf('legacy-server.mjs', async (_, taskgate) => {
    const through = required(await runSuite('a legacy server through taskgate', taskgate, ...REVISION));
    return unexpected(through, BEYOND_A_LEGACY_SERVER) + (await tasksScenarios(taskgate));
  });
}

async function inFrontOf(file, run) {
  const server = await startServer(`modern/${file}`);
  try {
    const taskgate = await startTaskgateWith(taskToolsConfig(`url = ${JSON.stringify(server.url)}`));
    try {
      return await run(server.url, taskgate.url);
    } finally {
      await taskgate.stop();
    }
  } finally {
    await server.stop();
  }
}

async function tasksScenarios(url) {
  let count = 0;
  for (const scenario of TASKS_SCENARIOS) {
    const options = ['--scenario', scenario, '--spec-version', '2026-07-28', '--force'];
    const checks = await runSuite(scenario, url, ...options);
    for (const key of SKIPPED_BY_THE_SUITE) checks.delete(key);
    count += unexpected(checks, new Map());
  }
  return count;
}

// How many checks did not come out as they should; each is printed. An exception that no longer holds is one
// of them.
function unexpected(checks, exceptions) {
  let count = 0;
  for (const key of new Set([...checks.keys(), ...exceptions.keys()])) {
    const found = checks.get(key) ?? [];
    const exception = exceptions.get(key);
    if (exception ? statuses(found) === exception.status : found.every(({ status }) => passes(status)))
      continue;
    count += 1;
    console.log(`unexpected: ${key}: ${statuses(found)}, not ${exception?.status ?? 'SUCCESS'}`);
    for (const { errorMessage } of found) if (errorMessage) console.log(`  ${errorMessage}`);
  }
  return count;
}
