// Runs the official conformance suite against a server directly and through taskgate: every check
// must come out the same.
import { startServer, startTaskgate } from './kit.mjs';
import { differences, runSuite, statuses } from './suite.mjs';

const REVISION = ['--requirements', '2025-11-25'];

const server = await startServer('everything-server.mjs');
const taskgate = await startTaskgate('--upstream', server.url);
try {
  const direct = await runSuite('directly', server.url, ...REVISION);
  const through = await runSuite('through taskgate', taskgate.url, ...REVISION);
  process.exitCode = failures(direct) + differences(direct, through) === 0 ? 0 : 1;
} finally {
  await taskgate.stop();
  await server.stop();
}

// The same failure both ways would prove nothing, so the server itself has to pass everything.
function failures(direct) {
  const failed = [...direct].filter(([, checks]) => checks.some(({ status }) => status !== 'SUCCESS'));
  for (const [key, checks] of failed) console.log(`the server itself: ${key}: ${statuses(checks)}`);
  return failed.length;
}
