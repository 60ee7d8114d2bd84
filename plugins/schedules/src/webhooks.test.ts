import type { SafeFetch } from '@sibyl/plugin-kit';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { schedules } from './index.js';
import { ScheduleRuns } from './run-store.js';
import { ScheduleStore } from './schedule-store.js';
import { ResultDelivery } from './webhooks.js';

const url = 'https://example.com';
/** More than one look considers. */
const ATTACKERS = 1_100;

describe.each(engines)('ResultDelivery on %s', (engine) => {
  const test = usePluginTables(engine, schedules);

  /** A schedule of each user whose run has ended, with a result that is to be posted since a time. */
  async function addResults(owners: readonly string[], to: string, since: number) {
    const store = new ScheduleStore(test.database);
    const [first = ''] = owners;
    const trigger = { type: 'webhook' } as const;
    const wanted = { name: 'x', message: 'x', trigger, catchUp: 'once' as const };
    const where = { delegation: { cid: 'bafy' }, sessionId: 's', resultUrl: to };
    const { id } = await store.create({ ...wanted, ...where, owner: first }, 1);
    const schedule = await store.find({ owner: first, id });
    if (!schedule) throw new Error('It was created');
    const run = {
      ...{ schedule_id: id, due_at: 1, cause: 'time' as const, status: 'finished' as const },
      ...{ data: null, session_id: 's', run_id: null, attempts: 0, error: null, check_at: null },
      ...{ ended_at: 1, delivery: 'pending' as const, delivery_attempts: 0, delivery_error: null },
    };
    await test.database.write(async (tables) => {
      for (const owner of owners) {
        if (owner !== first)
          await tables
            .insertInto('schedules_schedules')
            .values({ ...schedule, owner })
            .execute();
        const row = { ...run, owner, deliver_at: since };
        await tables.insertInto('schedules_runs').values(row).execute();
      }
    });
  }

  it('posts results for others while receivers of very many users at one address do not answer', async () => {
    const posted: string[] = [];
    const left = new AbortController();
    const fetch: SafeFetch = async (target) => {
      posted.push(String(target));
      if (!String(target).includes('dead')) return new Response('');
      return new Promise((_, reject) => {
        left.signal.addEventListener('abort', reject);
        if (left.signal.aborted) reject(left.signal.reason);
      });
    };
    const attackers = new Set(Array.from({ length: ATTACKERS }, newOwner));
    const honest = newOwner();
    await addResults([...attackers], `${url}/dead`, 1);
    await addResults([honest], `${url}/alive`, 2);
    const delivery = new ResultDelivery({
      chats: { find: () => undefined },
      schedules: new ScheduleStore(test.database),
      runs: new ScheduleRuns(test.database),
      turns: { outcome: async () => undefined },
      permits: { check: async () => undefined },
      fetch,
      ucan: { signWebhook: () => '' },
      oracle: { did: 'did:key:zOracle' } as never,
      findHolder: async (owner) => ({
        owner,
        address: attackers.has(owner) ? '192.0.2.1' : owner,
        isKnown: false,
      }),
      logger: { info: vi.fn(), warn: vi.fn(), error: vi.fn() },
    });
    onTestFinished(() => {
      left.abort();
      return delivery.close();
    });
    for (let look = 0; look < 3; look++) await delivery.deliverSome();
    await expect.poll(() => posted, { timeout: 10_000 }).toContain(`${url}/alive`);
    const dead = posted.filter((target) => target.includes('dead'));
    expect(dead.length).toBeLessThan(20);
  });
});
