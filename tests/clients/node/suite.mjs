// Runs the official conformance suite against a server, and compares what its checks came to.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const SUITE = join(
  dirname(createRequire(import.meta.url).resolve('@modelcontextprotocol/conformance/package.json')),
  'dist/index.js',
);

// Entries that record traffic and check nothing.
const RECORDS = new Set([
  'incoming-request',
  'incoming-response',
  'incoming-sse-event',
  'outgoing-request',
  'stream-closed',
]);

/** Runs the suite with these arguments; returns its checks by `scenario: id`, which may occur more than once. */
export async function runSuite(how, url, ...chosen) {
  const folder = mkdtempSync(join(tmpdir(), 'taskgate-conformance-'));
  try {
    const args = [SUITE, 'server', '--url', url, ...chosen, '--output-dir', folder];
    const suite = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    let output = '';
    suite.stdout.setEncoding('utf8').on('data', (chunk) => (output += chunk));
    const [code] = await once(suite, 'close');

    const checks = readChecks(folder);
    if (checks.size === 0) throw new Error(`the suite recorded no checks (exit ${code}):\n${output}`);
    console.log(`${how}: ${totals(checks)}`);
    return checks;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function readChecks(folder) {
  const checks = new Map();
  for (const name of readdirSync(folder).sort()) {
    const scenario = name.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT.*$/, '');
    for (const check of JSON.parse(readFileSync(join(folder, name, 'checks.json'), 'utf8'))) {
      if (RECORDS.has(check.id)) continue;
      const key = `${scenario}: ${check.id}`;
      checks.set(key, [...(checks.get(key) ?? []), check]);
    }
  }
  return checks;
}

function totals(checks) {
  const counts = {};
  for (const { status } of [...checks.values()].flat()) counts[status] = (counts[status] ?? 0) + 1;
  return Object.entries(counts)
    .sort()
    .map(([status, count]) => `${count} ${status}`)
    .join(', ');
}

/** How many checks came out differently; each is printed. */
export function differences(direct, through) {
  let count = 0;
  for (const key of new Set([...direct.keys(), ...through.keys()])) {
    const [before, after] = [statuses(direct.get(key)), statuses(through.get(key))];
    if (before === after) continue;
    count += 1;
    console.log(`different: ${key}: directly ${before}, through taskgate ${after}`);
    for (const { errorMessage } of through.get(key) ?? []) {
      if (errorMessage) console.log(`  ${errorMessage}`);
    }
  }
  console.log(count === 0 ? 'no check differs' : `${count} checks differ`);
  return count;
}

/** What the checks of one id came to, in their order. */
export function statuses(checks) {
  return checks?.map(({ status }) => status).join(' ') ?? 'absent';
}
