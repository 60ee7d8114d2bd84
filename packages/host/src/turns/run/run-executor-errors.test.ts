import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { requestTo } from '../../../test/support/agent/agent-requests.js';
import { ScriptedModel, say } from '../../../test/support/agent/scripted-model.js';
import { createActiveRun, createRecording } from '../../../test/support/test-active-run.js';
import { useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import { MemoryEventBus } from '../../bus/event-bus.js';
import { ModelError } from '../../models/model.js';
import { Metrics } from '../../observability/metrics.js';
import type { Run } from '../../store/runs/run.js';
import { StoreError } from '../../store/store-errors.js';
import type { TurnRequest } from '../turn-request.js';
import { RunExecutor } from './run-executor.js';
import { Titles } from './titles.js';
import { TurnSetup } from './turn-setup.js';

const test = useStore('sqlite');
const silent = pino({ level: 'silent' });

/** Runs a turn on a real store whose agent is set up like this. */
async function runTurn(
  prepare: TurnSetup['prepare'],
  { hold }: { readonly hold?: () => Promise<() => void> } = {},
) {
  const { runs, sessions, usage } = test.store;
  const { run, session: key } = await startTestRun(test.store);
  const log: Record<string, unknown>[] = [];
  const metrics = new Metrics();
  const events = new MemoryEventBus();
  const setup: TurnSetup = Object.assign(Object.create(TurnSetup.prototype), { prepare });
  const model = new ScriptedModel();
  const executor = new RunExecutor({
    ...{ setup, events, metrics, usage, now: Date.now },
    titles: new Titles({ sessions, changes: { publish: () => {} }, model, logger: silent }),
    grants: { hold: hold ?? (async () => () => {}) },
    logger: pino({ base: null }, { write: (line) => void log.push(JSON.parse(line)) }),
    ...{ hostId: 'host-1', agentName: 'Sibyl', mainModel: 'vendor/main' },
    limits: { ms: 60_000, paused: 10, storeWaitMs: 1_000 },
  });
  const permission = { owner: run.owner, cid: 'bafy', resource: 'ixo:oracle:x:schedule/7' };
  const live = createActiveRun(run, {
    session: await sessions.get(key),
    request: { ...buildRequest(run), ...(hold && { permission }) },
    recording: createRecording(runs, { events }),
  });
  const outcome = await executor.execute(live);
  const frames = live.log.since(0).map(({ event, data }) => ({ event, data: JSON.parse(data) }));
  return {
    ...{ outcome, run, log, frames },
    shown: frames.flatMap(({ event, data }) => (event === 'error' ? [data] : [])),
    stored: await runs.find(run),
    readMetric: async (name: string) =>
      (await metrics.print())
        .split('\n')
        .filter((line) => line.startsWith(`${name}{`))
        .map((line) => line.slice(name.length)),
  };
}

const buildRequest = ({ owner, sessionId, requestId }: Run): TurnRequest => ({
  caller: { did: owner, expiration: 10, presentedDelegation: undefined },
  message: { message: 'What is soil?', multitask: 'enqueue' },
  ...{ sessionId, requestId, user: {}, client: 'api' },
});

const runFailingWith = (error: unknown) => runTurn(() => Promise.reject(error));

describe('a turn that fails', () => {
  it.each([
    ['access_revoked', 'auth', false],
    ['insufficient_credit', 'billing', false],
    ['forbidden', 'auth', false],
    ['response_schema_mismatch', 'server', false],
    ['rate_limited', 'rate_limit', true],
    ['plugin_failed', 'server', true],
    ['validation_failed', 'unknown', false],
    ['queue_full', 'unknown', false],
  ] as const)('with %s has the kind %s; retryable: %s', async (code, kind, retryable) => {
    const error = new OracleError(code);
    const { outcome, run, shown, stored, log, readMetric } = await runFailingWith(error);
    expect(outcome).toMatchObject({ status: 'failed', error });
    expect(shown).toMatchObject([{ code, kind, retryable, error: error.message }]);
    expect(stored).toMatchObject({ status: 'failed', error: { kind, message: error.message } });
    expect(log).toMatchObject([{ level: 40, did: run.owner, kind, cause: code }]);
    expect(await readMetric('sibyl_turns_total')).toEqual([`{status="failed",kind="${kind}"} 1`]);
    expect(await readMetric('sibyl_turn_failures_total')).toEqual([`{cause="${code}"} 1`]);
  });

  it.each([
    ['may answer after the time of its provider', { retryAfterSeconds: 30 }, 30, 'provider_error'],
    ['may answer soon', {}, 5, 'provider_error'],
    [
      'would fail again',
      { kind: 'auth', retryable: false, retryAfterSeconds: 30 },
      undefined,
      'wrong_key',
    ],
  ] as const)('because of a model that %s', async (_, options, retryAfterSeconds, cause) => {
    const message = 'The model is away.';
    const failure = new ModelError(message, { kind: 'server', retryable: true, ...options });
    const { outcome, shown, readMetric } = await runFailingWith(failure);
    expect(outcome.error).toMatchObject({ code: 'model_unavailable', message });
    expect(outcome.error?.retryAfterSeconds).toBe(retryAfterSeconds);
    const { kind, retryable } = failure;
    const code = 'model_unavailable';
    expect(shown).toMatchObject([{ kind, retryable, code, error: message }]);
    expect(await readMetric('sibyl_turn_failures_total')).toEqual([`{cause="${cause}"} 1`]);
  });

  it('does not fail because the store is away when its delegation is checked', async () => {
    const away = Object.assign(new Error('the server is starting'), { code: '57P03' });
    const hold = vi
      .fn(async () => () => {})
      .mockRejectedValueOnce(away)
      .mockRejectedValueOnce(new OracleError('store_unavailable'));
    const error = new OracleError('plugin_failed');
    const { outcome } = await runTurn(() => Promise.reject(error), { hold });
    expect(outcome).toMatchObject({ status: 'failed', error });
    expect(hold).toHaveBeenCalledTimes(3);
  });

  it.each([
    ['cannot be reached', new StoreError('away'), 'store_unavailable'],
    ['is full', Object.assign(new Error('full'), { code: 'ENOSPC' }), 'disk_full'],
  ])('because the store %s may be repeated', async (_, thrown, cause) => {
    const { outcome, shown, readMetric } = await runFailingWith(thrown);
    expect(outcome.error).toMatchObject({ code: 'store_unavailable', retryAfterSeconds: 5 });
    expect(shown).toMatchObject([{ kind: 'server', retryable: true }]);
    expect(await readMetric('sibyl_turn_failures_total')).toEqual([`{cause="${cause}"} 1`]);
  });

  it('because of a bug hides its details, and logs them', async () => {
    const { outcome, run, shown, frames, log, readMetric } = await runFailingWith(
      new Error('secret detail'),
    );
    const { status, error } = outcome;
    const message = 'The turn failed within the host';
    expect([status, error?.code, error?.message]).toEqual(['failed', 'internal_error', message]);
    const shownFields = { code: 'internal_error', kind: 'unknown', retryable: true };
    expect(shown).toMatchObject([{ ...shownFields, error: message }]);
    expect(JSON.stringify(frames)).not.toContain('secret detail');
    const err = expect.objectContaining({ message: 'secret detail' });
    expect(log).toEqual([expect.objectContaining({ level: 50, did: run.owner, err })]);
    expect(await readMetric('sibyl_turn_failures_total')).toEqual(['{cause="internal_error"} 1']);
  });

  it('because the host stopped it reports that, rather than what broke then', async () => {
    const limit = new OracleError('turn_too_long');
    const { outcome } = await runTurn(async (live) => {
      live.fail(limit);
      throw new Error('broken by the end');
    });
    expect(outcome).toMatchObject({ status: 'failed', error: limit });
  });
});

it('a limit that is reached after the answer is complete does not fail the turn', async () => {
  const { outcome, shown } = await runTurn(async (live) => {
    const model = new ScriptedModel(() => {
      live.fail(new OracleError('turn_too_long'));
      return say('Hello.');
    });
    return requestTo(model);
  });
  expect(outcome).toMatchObject({ status: 'finished', text: 'Hello.', error: undefined });
  expect(shown).toEqual([]);
});
