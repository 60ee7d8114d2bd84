import { readdirSync, readlinkSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Injectable, Module, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { createOracleApp, type OracleAppOptions } from '@sibyl/host';
import { definePlugin } from '@sibyl/plugin-kit';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createTestDatabase, engines } from './support/test-database.js';

const logger = pino({ level: 'silent' });
const manifest = { title: 'T', summary: 'S', whenToUse: ['in tests'], category: 'test' };

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-failed-'));
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(dataDir, { recursive: true, force: true });
});

/** Collects the intervals that are started and not stopped again. */
function watchIntervals(): ReadonlySet<NodeJS.Timeout> {
  const running = new Set<NodeJS.Timeout>();
  const { setInterval: start, clearInterval: stop } = globalThis;
  vi.spyOn(globalThis, 'setInterval').mockImplementation(((...args: Parameters<typeof start>) => {
    const timer = start(...args);
    running.add(timer);
    return timer;
  }) as typeof start);
  vi.spyOn(globalThis, 'clearInterval').mockImplementation(((timer: NodeJS.Timeout) => {
    running.delete(timer);
    stop(timer);
  }) as typeof stop);
  return running;
}

/** The files of a folder that this process has open. */
function openFilesIn(folder: string): string[] {
  return readdirSync('/proc/self/fd')
    .map((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`);
      } catch {
        return '';
      }
    })
    .filter((file) => file.startsWith(folder));
}

const released: string[] = [];

@Injectable()
class Holder implements OnModuleDestroy {
  onModuleDestroy() {
    released.push('module');
  }
}

@Injectable()
class Failing implements OnModuleInit {
  onModuleInit() {
    throw new Error('this module does not start');
  }
}

@Module({ providers: [Holder] })
class HolderModule {}

@Module({ imports: [HolderModule], providers: [Failing] })
class FailingModule {}

const withFailingModule = definePlugin({
  name: 'failing-module',
  version: '1.0.0',
  manifest,
  close: () => void released.push('plugin'),
  getNestModules: () => [FailingModule],
});

const withFailingHook = definePlugin({
  name: 'failing-hook',
  version: '1.0.0',
  manifest,
  getTools: () => {
    throw new Error('this hook fails');
  },
});

describe.each(engines)('createOracleApp that fails on %s', (engine) => {
  async function startAndFail(options: OracleAppOptions, action: 'create' | 'listen') {
    const database = await createTestDatabase(engine);
    const intervals = watchIntervals();
    for (let i = 0; i < 3; i++) {
      const env = { PORT: '0', ...database.env, ...options.env };
      const starting = createOracleApp({ ...options, env, logger, bundled: [] });
      if (action === 'create') await expect(starting).rejects.toThrow();
      else await expect((await starting).listen()).rejects.toThrow(/EADDRINUSE/);
    }
    expect([...intervals]).toEqual([]);
    expect(openFilesIn(database.env.DATA_DIR ?? '')).toEqual([]);
    vi.restoreAllMocks();
    await database.drop();
  }

  it('because a plugin module does not start leaves nothing behind', async () => {
    released.length = 0;
    await startAndFail({ plugins: [withFailingModule] }, 'create');
    expect(released.filter((what) => what === 'plugin')).toHaveLength(3);
    expect(released.filter((what) => what === 'module')).toHaveLength(3);
  });

  it('because a plugin hook fails leaves nothing behind', async () => {
    await startAndFail({ plugins: [withFailingHook] }, 'create');
  });

  it.each(['PORT', 'METRICS_PORT'])('because %s is in use leaves nothing behind', async (name) => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    await startAndFail({ env: { [name]: String(port) } }, 'listen');
    other.close();
  });
});

it('createOracleApp starts after several failed attempts in the same process', async () => {
  const env = { PORT: '0', DATA_DIR: dataDir };
  const failing = { env, logger, bundled: [], plugins: [withFailingModule] };
  for (let i = 0; i < 3; i++) await expect(createOracleApp(failing)).rejects.toThrow();
  const app = await createOracleApp({ env, logger, bundled: [] });
  const url = await app.listen();
  expect((await fetch(`${url}/health/ready`)).status).toBe(200);
  await app.close();
});
