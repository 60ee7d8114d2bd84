import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { createHostProcess } from './host-process.js';

const host = createHostProcess();

/** The id a process with this pid would have on this machine. */
function idOf(pid: number | undefined): string {
  const [machine] = host.id.split('/');
  return `${machine}/${pid}/0000`;
}

it('knows itself and its siblings in one process to live', () => {
  expect(host.isKnownDead(host.id)).toBe(false);
  expect(host.isKnownDead(createHostProcess().id)).toBe(false);
});

it('knows a process of this machine to be dead once it has ended', async () => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  await once(child, 'spawn');
  expect(host.isKnownDead(idOf(child.pid))).toBe(false);
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(host.isKnownDead(idOf(child.pid))).toBe(true);
});

it('claims nothing of other machines', () => {
  expect(host.isKnownDead('elsewhere/999999999/0000')).toBe(false);
  expect(host.isKnownDead('')).toBe(false);
});
