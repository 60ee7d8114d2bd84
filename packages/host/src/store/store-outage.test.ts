import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createTestDatabase } from '../../test/support/test-database.js';
import type { Database } from './database.js';
import { openDatabase } from './open-database.js';
import { StoreError, StoreOutage } from './store-errors.js';

const QUIET_MS = 5_000;
const NOW = Date.UTC(2026, 0, 1);

const createFull = (message = 'the disk is full') =>
  Object.assign(new Error(message), { code: 'ENOSPC' });

beforeEach(() => {
  vi.useFakeTimers({ now: NOW, toFake: ['performance', 'setInterval', 'clearInterval', 'Date'] });
});
afterEach(() => void vi.useRealTimers());

function newOutage() {
  const logger = { error: vi.fn(), info: vi.fn() };
  const outage = new StoreOutage(logger);
  onTestFinished(() => outage.close());
  return { outage, logger };
}

async function openTestDatabase(): Promise<Database> {
  const { options, drop } = await createTestDatabase('sqlite');
  const database = await openDatabase(options);
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  return database;
}

describe('StoreOutage', () => {
  it('counts failures by kind, and ignores bugs', () => {
    const { outage, logger } = newOutage();
    outage.failed(new TypeError('x is undefined'));
    expect(outage.current).toBeUndefined();
    expect(outage.counts).toEqual({ passing: 0, full: 0, lasting: 0 });
    expect(logger.error).not.toHaveBeenCalled();
    outage.failed(createFull());
    outage.failed(new StoreError('locked'));
    outage.failed(new StoreError('locked'));
    outage.failed(Object.assign(new Error('x'), { code: 'ERR_SQLITE_ERROR', errcode: 11 }));
    expect(outage.counts).toEqual({ passing: 2, full: 1, lasting: 1 });
    expect(logger.error).toHaveBeenCalledOnce();
  });

  it('says since when, how often and why', () => {
    const { outage } = newOutage();
    expect(outage.current).toBeUndefined();
    vi.advanceTimersByTime(1_000);
    outage.failed(createFull('first'));
    vi.advanceTimersByTime(2_000);
    expect(outage.current).toEqual({ since: new Date(NOW + 1_000), failures: 1, reason: 'first' });
    outage.failed(new StoreError('second'));
    vi.advanceTimersByTime(500);
    expect(outage.current).toEqual({ since: new Date(NOW + 1_000), failures: 2, reason: 'second' });
  });

  it('shortens a long reason, and uses the first of several errors', () => {
    const { outage } = newOutage();
    const fail = (error: Error) => {
      outage.failed(error);
      return outage.current?.reason;
    };
    expect(fail(createFull('x'.repeat(400)))).toBe('x'.repeat(300));
    const code = { code: 'ECONNREFUSED' };
    const errors = [new Error('address one'), new Error('address two')];
    expect(fail(Object.assign(new AggregateError(errors), code))).toBe('address one');
    expect(fail(Object.assign(new AggregateError(['a text']), code))).toBe('a text');
    expect(fail(Object.assign(new AggregateError([], 'none'), code))).toBe('none');
    expect(fail(Object.assign(new Error('no list'), code, { errors: 'x' }))).toBe('no list');
  });

  it('ends after five seconds without a failure, at the next success', () => {
    const { outage, logger } = newOutage();
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS - 1);
    outage.succeeded();
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS - 1);
    outage.succeeded();
    expect(outage.current).toBeDefined();
    expect(logger.info).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    outage.succeeded();
    outage.succeeded();
    expect(outage.current).toBeUndefined();
    expect(logger.info).toHaveBeenCalledOnce();
    // Between the first and the last failure.
    expect(logger.info).toHaveBeenCalledWith({ failures: 2, seconds: 5 }, expect.any(String));
    expect(outage.counts.full).toBe(2);
  });

  it('logs each outage once, with its error', () => {
    const { outage, logger } = newOutage();
    const [first, second] = [createFull('first'), createFull('second')];
    outage.failed(first);
    outage.failed(createFull('another'));
    vi.advanceTimersByTime(QUIET_MS);
    outage.succeeded();
    outage.failed(second);
    const logged = logger.error.mock.calls.map(([fields]) => fields);
    expect(logged).toEqual([{ err: first }, { err: second }]);
    expect(outage.current).toMatchObject({ failures: 1 });
  });
});

describe('StoreOutage.watch', () => {
  const fail = async () => {
    throw createFull();
  };
  const succeed = async () => 'value';

  /** So that only what a test does ends the outage. */
  const hang = () => new Promise<void>(() => {});

  async function watch(probe: () => Promise<void> = async () => {}) {
    const { outage } = newOutage();
    const probed = vi.fn(probe);
    const database = await openTestDatabase();
    return { outage, probed, database, watched: outage.watch(database, probed) };
  }

  it('observes writes that fail, and rejects with their errors', async () => {
    const { outage, watched } = await watch();
    await expect(watched.write(fail)).rejects.toThrow('the disk is full');
    await expect(watched.writeFor('did:key:zOwner', fail)).rejects.toThrow('the disk is full');
    expect(outage.current).toMatchObject({ failures: 2 });
  });

  it.each(['write', 'writeFor'] as const)('a success of %s ends an outage', async (name) => {
    const { outage, watched } = await watch(hang);
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS);
    const committed: string[] = [];
    const result =
      name === 'write'
        ? watched.write(succeed)
        : watched.writeFor('did:key:zOwner', succeed, {
            onCommit: (value) => committed.push(value),
          });
    expect(await result).toBe('value');
    expect(outage.current).toBeUndefined();
    expect(committed).toEqual(name === 'write' ? [] : ['value']);
  });

  it('a read does not end an outage', async () => {
    const { outage, watched } = await watch(hang);
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS);
    expect(await watched.read(succeed)).toBe('value');
    await watched.tables.selectFrom('rooms').select('id').execute();
    expect(outage.current).toBeDefined();
  });

  it('writes every five seconds during an outage, until a write succeeds', async () => {
    let isFull = true;
    const probe = async () => {
      if (isFull) throw createFull();
    };
    const { outage, probed, database } = await watch(probe);
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(probed).not.toHaveBeenCalled();
    outage.failed(createFull());
    await vi.advanceTimersByTimeAsync(QUIET_MS - 1);
    expect(probed).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(probed).toHaveBeenCalledExactlyOnceWith(database);
    expect(outage.current).toMatchObject({ failures: 2 });
    isFull = false;
    await vi.advanceTimersByTimeAsync(QUIET_MS);
    expect(outage.current).toBeUndefined();
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(probed).toHaveBeenCalledTimes(2);
  });

  it('writes nothing after it was closed, whether an outage began before or after', async () => {
    const { outage, probed } = await watch();
    outage.failed(createFull());
    outage.close();
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(probed).not.toHaveBeenCalled();
    const later = await watch();
    later.outage.close();
    later.outage.failed(createFull());
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(later.probed).not.toHaveBeenCalled();
    expect(later.outage.current).toMatchObject({ failures: 1 });
  });
});
