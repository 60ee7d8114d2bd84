import { OracleError } from '@sibyl/plugin-kit';
import { expect, it, onTestFinished, vi } from 'vitest';
import { SchedulePermits } from './schedule-permits.js';
import { Scheduler } from './scheduler.js';

const SWEEP_MS = 600_000;

/** A scheduler with two active schedules and nothing due; `check` is the host's check of a delegation. */
function startScheduler(
  check: (grant: { readonly owner: string }) => Promise<string | undefined>,
  claimDue: () => Promise<unknown[]> = async () => [],
) {
  const stopped: string[] = [];
  const sessions = new Set<string>();
  const warnings: object[] = [];
  const rows = ['did:web:unreachable.example', 'did:key:zRevoked'].map((owner) => ({
    ...{ owner, id: `schedule of ${owner}`, delegation_cid: 'bafy', trigger: '{"type":"webhook"}' },
    ...{ message: 'x', result_url: null, result_to: null },
  }));
  const deps = {
    schedules: {
      now: async () => 0,
      listExpired: async () => [],
      listActive: async ({ owner }: { owner: string }) => (owner === '' ? rows : []),
      stop: async ({ owner }: { owner: string }) => void stopped.push(owner),
      find: async () => rows[0],
      change: () => Promise.reject(new OracleError('schedule_not_found')),
    },
    runs: {
      claimDue,
      takeUnattended: async () => [],
      untilNext: async () => 20,
    },
    turns: {
      onRevoked: () => () => undefined,
      start: () => Promise.reject(new OracleError('session_not_found')),
      openSession: async () => {
        sessions.add('new');
        return { sessionId: 'new' };
      },
      removeEmptySession: async () => void sessions.delete('new'),
    },
    delivery: { deliverSome: async () => undefined },
    permits: new SchedulePermits({ turns: { check } as never, oracleDid: 'did:key:zOracle' }),
    logger: { warn: (fields: object) => void warnings.push(fields), info: () => undefined },
  };
  const scheduler = new Scheduler(deps as unknown as ConstructorParameters<typeof Scheduler>[0]);
  onTestFinished(() => scheduler.close());
  return { scheduler, stopped, sessions, warnings };
}

it('a schedule whose permission cannot be checked does not keep others from being stopped', async () => {
  const { stopped, warnings } = startScheduler(async ({ owner }) => {
    if (owner.startsWith('did:web:')) throw new Error('the DID document cannot be read');
    return 'The delegation was revoked';
  });
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + SWEEP_MS);
  onTestFinished(() => void vi.restoreAllMocks());
  await expect.poll(() => stopped).toEqual(['did:key:zRevoked']);
  expect(warnings).toMatchObject([{ did: 'did:web:unreachable.example' }]);
});

it('rounds that fail one after the other are logged once a minute', async () => {
  let rounds = 0;
  const { warnings, scheduler } = startScheduler(
    async () => undefined,
    async () => {
      rounds += 1;
      throw new Error('the database is away');
    },
  );
  const runRound = () => {
    const before = rounds;
    scheduler.wake();
    return expect.poll(() => rounds).toBeGreaterThan(before);
  };
  for (let i = 0; i < 3; i++) await runRound();
  expect(warnings).toEqual([{ reason: 'Error: the database is away' }]);
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + 60_000);
  onTestFinished(() => void vi.restoreAllMocks());
  await runRound();
  await expect.poll(() => warnings).toHaveLength(2);
});

it('a user who is erased while a run starts gets no new session', async () => {
  const run = { owner: 'did:key:zErased', schedule_id: 'x', due_at: 1, run_id: null, attempts: 0 };
  const due = [run];
  const { sessions, warnings } = startScheduler(
    async () => undefined,
    async () => due.splice(0),
  );
  await expect.poll(() => warnings).toMatchObject([{ did: run.owner }]);
  expect(sessions).toEqual(new Set());
});
