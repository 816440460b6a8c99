// What the tools remember, for every process that serves them: over stdio each call may have one of its own.
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const LOOK_EVERY_MS = 20;
const at = process.argv.indexOf('--notes');
const folder = at < 0 ? mkdtempSync(join(tmpdir(), 'taskgate-notes-')) : process.argv[at + 1];
const fileOf = (what) => join(folder, encodeURIComponent(what));

export const note = (what) => writeFileSync(fileOf(what), '');
export const isNoted = (what) => existsSync(fileOf(what));

/** Waits until it is noted. */
export async function noted(what, signal) {
  while (!isNoted(what)) await sleep(LOOK_EVERY_MS, undefined, { signal });
}
