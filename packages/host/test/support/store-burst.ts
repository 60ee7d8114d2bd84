import { writeSync } from 'node:fs';
import { openStore } from '../../src/store/store.js';

// A second process for the store's tests: writes `count` sessions, `together` at a time, and prints
// the id of each one the store has acknowledged.
const { count, together, owner, ...options } = JSON.parse(process.argv[2] ?? '{}');
const store = await openStore({ ...options, secretKey: new Uint8Array(32).fill(7) });
let started = 0;

async function writeOn(): Promise<void> {
  while (started < count) {
    started += 1;
    const { sessionId: id } = await store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    writeSync(1, `${id}\n`);
  }
}

await Promise.all(Array.from({ length: together }, writeOn));
await store.close();
