import { randomBytes } from 'node:crypto';
import { generateSigner } from '@sibyl/ucan';
import { expect, it, onTestFinished, vi } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import type { StoredFile } from '../store/file-store.js';
import { Exports } from './exports.js';

const test = useStore('sqlite');

/** Exports with a file of 4 MB, on a clock that can be moved. */
function createExports() {
  const passed = performance.now.bind(performance);
  const clock = { skippedMs: 0 };
  const spy = vi.spyOn(performance, 'now').mockImplementation(() => passed() + clock.skippedMs);
  onTestFinished(() => spy.mockRestore());
  const readBytes = async function* () {
    for (let i = 0; i < 64; i++) yield randomBytes(64 * 1024);
  };
  const exportAll = async function* () {
    yield { file: { id: 'f', name: 'a.bin' } as StoredFile, bytes: readBytes() };
  };
  const oracle = new OracleIdentity('Test', undefined, generateSigner());
  const { ownerRows: rows } = test.store;
  return { clock, exports: new Exports({ rows, oracle, plugins: [], files: { exportAll } }) };
}

const newHolder = () => ({ owner: newOwner(), address: '192.0.2.1', isKnown: false });

/** Reads a whole export, with so much time between its pieces. */
async function read(skipMs: number): Promise<number> {
  const { exports, clock } = createExports();
  let bytes = 0;
  for await (const piece of exports.open(newHolder())) {
    bytes += piece.length;
    clock.skippedMs += skipMs;
  }
  return bytes;
}

it('Exports end for a client that reads too slowly, and make room for others', async () => {
  const { exports, clock } = createExports();
  const holder = newHolder();
  const readSlowly = async () => {
    for await (const _ of exports.open(holder)) clock.skippedMs += 50_000;
  };
  await expect(readSlowly()).rejects.toMatchObject({ code: 'request_timeout' });
  const again = exports.open(holder);
  expect((await again.next()).done).toBe(false);
  await again.return(undefined);
});

it('Exports continue for a client that pauses for less than a minute in all', async () => {
  expect(await read(100)).toBeGreaterThan(4_000_000);
});
