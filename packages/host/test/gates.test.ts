import { OracleError } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { ask, call, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { outOfCredit, useGate } from './support/test-gate.js';

const MAIN = 'openai-compatible/controlled';
const bank = useGate();
const guard = useGate();

const test = useControlledHost({
  bundled: [],
  env: { PLUGIN_TIMEOUT_SECONDS: '1' },
  plugins: [
    testPlugin('bank', {
      getMessageGate: () => bank,
      getSubAgents: () => [{ name: 'helper', description: 'Helps', prompt: 'You help.' }],
    }),
    testPlugin('guard', { dependsOn: ['bank'], getMessageGate: () => guard }),
  ],
});

const send = (sessionId: string, body: object) =>
  test.alice.request('POST', `/messages/${sessionId}`, { body });

/** What is left of a session's turns. */
async function readStored(sessionId: string): Promise<object> {
  const history = await test.alice.request('GET', `/messages/${sessionId}`);
  const run = await test.alice.request('GET', `/sessions/${sessionId}/run`);
  return { ...history.body, ...run.body };
}

describe('a turn that a message gate rejects', () => {
  it.each([{ stream: true }, { stream: false }])('never starts: %o', async (how) => {
    bank.current.decide = () => {
      throw outOfCredit(['claim-1']);
    };
    const sessionId = await openSession(test.alice);
    const { status, headers, body } = await send(sessionId, { message: 'hi', ...how });
    expect(status).toBe(402);
    expect(headers.get('content-type')).toMatch(/^application\/json/);
    expect(body).toMatchObject({
      statusCode: 402,
      code: 'insufficient_credit',
      claims: ['claim-1'],
      outstandingClaims: ['claim-1'],
    });
    expect(await readStored(sessionId)).toEqual({ messages: [], run: null });
    expect([bank.current.settled, guard.current.asked]).toEqual([[], []]);
  });

  it('settles the holds of earlier gates without cost', async () => {
    guard.current.decide = () => {
      throw new OracleError('forbidden');
    };
    const { status } = await send(await openSession(test.alice), { message: 'hi' });
    expect(status).toBe(403);
    expect(bank.current.settled).toMatchObject([{ used: [] }]);
  });

  it('does not end the running turn that it would replace', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'first' });
    const turn = await test.model.next();
    bank.current.decide = () => {
      throw outOfCredit([]);
    };
    const refused = await send(sessionId, { message: 'second', multitask: 'interrupt' });
    expect(refused.status).toBe(402);
    turn.answer('still here');
    expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
  });
});

it('MessageGate.admit receives the user, session, model and size', async () => {
  const { sessionId } = await ask(test, [say()], { message: 'five!', requestId: 'r-1' });
  expect(bank.current.asked).toEqual([
    { owner: test.alice.did, sessionId, requestId: 'r-1', model: MAIN, length: 5 },
  ]);
});

describe('a turn whose gate check fails', () => {
  it('ends before the next model call', async () => {
    bank.current.check = (used) => {
      if (used.length > 0) throw outOfCredit(['claim-2']);
    };
    const exchange = await ask(test, [call(['call_helper_agent', { task: 'Help.' }])]);
    expect(filterFrames(exchange, 'error')).toMatchObject([{ kind: 'billing', retryable: false }]);
    expect(exchange.frames.at(-1)?.data).toMatchObject({ status: 'failed' });
    expect(await bank.current.settledOnce()).toEqual([
      { model: MAIN, input: 7, output: 3, cached: 0 },
    ]);
  });

  it('answers a JSON request with the error', async () => {
    bank.current.check = () => {
      throw outOfCredit(['claim-3']);
    };
    const { status, body } = await send(await openSession(test.alice), { message: 'hi' });
    expect([status, body.code, body.claims]).toEqual([402, 'insufficient_credit', ['claim-3']]);
  });
});

describe('a message gate that fails', () => {
  it.each<[string, () => unknown]>([
    ['throws', () => Promise.reject(new Error('broken'))],
    ['hangs', () => new Promise(() => undefined)],
    ['gives rubbish', () => 'rubbish'],
    ['gives an empty hold', () => ({})],
  ])('rejects turns: it %s', async (_, decide) => {
    bank.current.decide = decide;
    const sessionId = await openSession(test.alice);
    const { status, headers, body } = await send(sessionId, { message: 'hi', stream: true });
    expect([status, body.code]).toEqual([503, 'gate_unavailable']);
    expect(headers.get('retry-after')).toBe('5');
    expect(await readStored(sessionId)).toEqual({ messages: [], run: null });
    expect(guard.current.asked).toEqual([]);
    expect(test.host.log).toContainEqual(
      expect.objectContaining({ level: 50, plugin: 'bank', hook: 'getMessageGate' }),
    );
  });

  it('to check ends the turn before the model is called', async () => {
    bank.current.check = () => Promise.reject(new Error('broken'));
    const exchange = await ask(test, []);
    expect(filterFrames(exchange, 'error')).toMatchObject([{ kind: 'server', retryable: true }]);
    expect(exchange.frames.at(-1)?.data).toMatchObject({ status: 'failed' });
    expect(await bank.current.settledOnce()).toEqual([]);
    expect(test.host.log).toContainEqual(
      expect.objectContaining({ plugin: 'bank', hook: 'TurnHold.check' }),
    );
  });

  it('to answer in time settles its late hold', async () => {
    const late = Promise.withResolvers<undefined>();
    bank.current.decide = () => late.promise;
    expect((await send(await openSession(test.alice), { message: 'hi' })).status).toBe(503);
    expect(bank.current.settled).toEqual([]);
    late.resolve(undefined);
    expect(await bank.current.settledOnce()).toEqual([]);
  });
});
