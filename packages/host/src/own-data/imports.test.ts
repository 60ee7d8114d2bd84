import { setTimeout as sleep } from 'node:timers/promises';
import { generateSigner } from '@sibyl/ucan';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import type { ImportProgress, ImportStore } from '../store/own-data/import-store.js';
import { listParts } from './archive-format.js';
import { ImportWriter } from './import-writer.js';
import { Imports } from './imports.js';

const test = useStore('sqlite');

/** How long a report of the progress waits for the last one, which should wait for it. */
const LATE_MS = 1_000;

/** A store in which an import lasts until its progress is reported, and this report is stored late. */
function delayReports(store: ImportStore, stored: string[]): ImportStore {
  const isReporting = Promise.withResolvers<void>();
  const isLastSent = Promise.withResolvers<void>();
  const insertSession: ImportStore['insertSession'] = async (...session) => {
    await isReporting.promise;
    return store.insertSession(...session);
  };
  const updateJob = async (owner: string, id: string, progress: ImportProgress) => {
    if (progress.status === 'running') {
      isReporting.resolve();
      await Promise.race([isLastSent.promise.then(() => sleep(20)), sleep(LATE_MS)]);
    } else isLastSent.resolve();
    stored.push(progress.status);
    return store.updateJob(owner, id, progress);
  };
  return Object.assign(Object.create(store), { insertSession, updateJob });
}

it('Imports report their end last, although an earlier report is stored late', async () => {
  const stored: string[] = [];
  const store = delayReports(test.store.imports, stored);
  const { rooms, dataDisk: disk } = test.store;
  const oracle = new OracleIdentity('Test', undefined, generateSigner());
  const none = { importers: new Map(), skippedTables: [] };
  const openCharge = () => ({ add: () => {}, settle: () => {} });
  const imports = new Imports({
    changes: { publish: () => {} } as never,
    store,
    createWriter: ({ owner }) =>
      new ImportWriter({ owner, store, rooms, oracle, maxSessions: 10, openCharge, ...none }),
    files: {} as never,
    allowList: { watch: () => () => {} },
    uploads: { chargeArchive: () => undefined },
    disk,
    liveness: { hostId: 'host', findDeadHosts: async () => [] },
    dataDir: test.options.dataDir,
    maxBytes: 1e6,
    logger: pino({ enabled: false }),
  });
  const owner = newOwner();
  const conversation = { title: 'a', create_time: 1, mapping: {}, conversation_id: 'c' };
  const body = async function* () {
    yield Buffer.from(JSON.stringify([conversation]));
  };
  const { id } = await imports.start(
    { owner, address: '192.0.2.1', isKnown: false },
    { body: body() },
  );
  await expect.poll(() => stored.length, { timeout: 30_000 }).toBe(2);
  expect(stored).toEqual(['running', 'finished']);
  await expect.poll(() => imports.find(owner, id)).toMatchObject({ status: 'finished' });
});

it('listParts looks at each file of a manifest once, not once for each table', () => {
  let reads = 0;
  const createFile = (path: string) => ({
    ...{ bytes: 1, sha256: '' },
    get path() {
      reads += 1;
      return path;
    },
  });
  const paths = ['a/000002', 'b/000001', 'a/000001', 'a/000004'].map(
    (part) => `tables/${part}.jsonl`,
  );
  const files = paths.map(createFile);
  const [second, ofB, first] = files;
  const parts = listParts({ files }, ['a', 'b', 'c']);
  expect(reads).toBe(files.length);
  expect([...parts]).toEqual([
    ['a', [first, second]],
    ['b', [ofB]],
    ['c', []],
  ]);
});
