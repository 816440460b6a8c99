// What the tools remember. With --notes FOLDER it is kept there, for every process that serves them: over stdio
// each call may have one of its own.
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const LOOK_EVERY_MS = 20;
const at = process.argv.indexOf('--notes');
const folder = at < 0 ? undefined : process.argv[at + 1];
const fileOf = (what) => join(folder, encodeURIComponent(what));
const here = new Set();

export const note = (what) => (folder ? writeFileSync(fileOf(what), '') : here.add(what));
export const isNoted = (what) => (folder ? existsSync(fileOf(what)) : here.has(what));

/** Waits until it is noted. */
export async function noted(what, signal) {
  while (!isNoted(what)) await sleep(LOOK_EVERY_MS, undefined, { signal });
}
