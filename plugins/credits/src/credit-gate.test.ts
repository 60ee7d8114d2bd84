import type { ModelMessage, ModelRequest, TurnContext, UserPart } from '@sibyl/plugin-kit';
import { ModelResponse } from '@sibyl/plugin-kit/testing';
import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { newOwner } from '../../../packages/host/test/support/test-database.js';
import { openLedger } from '../test/support/open-ledger.js';
import { ActiveHolds, CreditGate, creditMiddleware, estimateRequest } from './credit-gate.js';
import { credits } from './index.js';
import { grantCredits } from './ledger.js';
import { Prices } from './prices.js';

const prices = Prices.parse({ m: { input: 1_000_000, output: 1_000_000 } });
const used = (input: number, output = 0) => ({ model: 'm', input, cached: 0, output });

describe('CreditGate: turns that are paid for', () => {
  const test = usePluginTables('sqlite', credits);

  async function openGate(balance: number, holds = new ActiveHolds()) {
    const { reservations, ledger } = openLedger(test.database);
    const owner = newOwner();
    await grantCredits(test.database, { owner, amount: balance });
    const settings = { prices, turnMinimum: 100, answerTokens: 50 };
    const gate = new CreditGate({ reservations, holds, ...settings });
    const request = { owner, sessionId: 's', requestId: 'r', model: 'm', length: 40 };
    const turn = { user: { did: owner }, session: { id: 's', requestId: 'r' } } as TurnContext;
    const middleware = creditMiddleware(holds);
    return {
      admit: (more: Partial<typeof request> = {}) => gate.admit({ ...request, ...more }),
      /** Starts a model call with about so many tokens; resolves once the model is called. */
      startCall: async (tokens: number, agent = 'main') => {
        const started = Promise.withResolvers<void>();
        const answer = Promise.withResolvers<ModelResponse>();
        const request = { ...modelRequest, agent, system: 'x'.repeat(tokens * 4) };
        const ended = middleware.wrapModel?.(
          request,
          () => {
            started.resolve();
            return answer.promise;
          },
          turn,
        );
        ended?.catch(started.reject);
        await started.promise;
        return {
          finish: async () => {
            answer.resolve(new ModelResponse({ text: '', toolCalls: [], use: used(0) }));
            await ended;
          },
          fail: async () => {
            answer.reject(new Error('the model failed'));
            await ended?.catch(() => undefined);
          },
        };
      },
      statement: () => ledger.statement({ owner, limit: 10 }),
    };
  }

  const modelRequest: ModelRequest = {
    agent: 'main',
    model: { id: 'm', vision: false },
    system: '',
    messages: [],
    tools: [],
  };

  it('sets aside the minimum and the price of the message, and charges what was used', async () => {
    const { admit, statement } = await openGate(1000);
    const hold = await admit();
    expect(await statement()).toMatchObject({ balance: 1000, reserved: 110 });
    await hold.settle([used(20, 5), used(30, 1)]);
    expect(await statement()).toMatchObject({
      balance: 944,
      reserved: 0,
      entries: [{ amount: -56, usage: [used(50, 6)] }, {}],
    });
  });

  it('refuses a turn that cannot be paid for', async () => {
    const { admit } = await openGate(109);
    await expect(admit()).rejects.toMatchObject({ code: 'insufficient_credit' });
    await admit({ length: 0 });
  });

  it('creditMiddleware sets credit aside for each call before it is made', async () => {
    const { admit, startCall, statement } = await openGate(1000);
    const hold = await admit();
    await hold.check?.([]);
    const first = await startCall(300);
    expect(await statement()).toMatchObject({ reserved: 351 });
    await first.finish();
    await hold.check?.([used(280, 20)]);
    const second = await startCall(400);
    expect(await statement()).toMatchObject({ reserved: 751 });
    await second.finish();
    await hold.check?.([used(280, 20), used(390, 60)]);
    await expect(startCall(500)).rejects.toMatchObject({ code: 'insufficient_credit' });
    await hold.settle([used(280, 20), used(390, 60)]);
    expect(await statement()).toMatchObject({ balance: 250, reserved: 0, unpaid: 0 });
  });

  it.each([
    ['different names', 'first', 'second'],
    ['one name', 'same', 'same'],
  ])('creditMiddleware adds up concurrent calls of agents with %s', async (_, one, other) => {
    const { admit, startCall, statement } = await openGate(1000);
    const hold = await admit();
    const first = await startCall(100, one);
    const second = await startCall(200, other);
    expect(await statement()).toMatchObject({ reserved: 402 });
    await first.finish();
    // The second call, 250 with its answer, is still to be paid for.
    await hold.check?.([used(100, 50)]);
    await expect(startCall(600)).rejects.toMatchObject({ code: 'insufficient_credit' });
    await second.finish();
    await startCall(600);
    expect(await statement()).toMatchObject({ reserved: 801 });
  });

  it('creditMiddleware releases the credit of a call that failed', async () => {
    const { admit, startCall } = await openGate(1000);
    await admit();
    await (await startCall(700, 'same')).fail();
    await startCall(800, 'same');
  });

  it('stops a turn whose calls of other kinds ran past the credit', async () => {
    const { admit, statement } = await openGate(150);
    const hold = await admit();
    await hold.check?.([used(140)]);
    await expect(hold.check?.([used(160)])).rejects.toMatchObject({ code: 'insufficient_credit' });
    await hold.settle([used(160)]);
    expect(await statement()).toMatchObject({ balance: 0, reserved: 0, unpaid: 10 });
  });

  it('creditMiddleware refuses a model call of a turn without a hold', async () => {
    const { startCall } = await openGate(1000);
    await expect(startCall(1)).rejects.toMatchObject({ code: 'gate_unavailable' });
  });

  it('ActiveHolds.find returns the first of several turns with one request id', async () => {
    const { admit, startCall, statement } = await openGate(1000);
    const first = await admit();
    const second = await admit();
    const call = await startCall(200);
    expect(await statement()).toMatchObject({ reserved: 251 + 110 });
    await call.finish();
    await first.settle([]);
    await startCall(300);
    expect(await statement()).toMatchObject({ reserved: 351 });
    await second.settle([]);
    expect(await statement()).toMatchObject({ balance: 1000, reserved: 0 });
  });

  it('ActiveHolds.find returns only holds of the owner, session and request', async () => {
    const holds = new ActiveHolds();
    const [alice, bob] = [await openGate(1000, holds), await openGate(1000, holds)];
    await alice.admit();
    await expect(bob.startCall(200)).rejects.toMatchObject({ code: 'gate_unavailable' });
    await bob.admit({ sessionId: 'other' });
    await bob.admit({ requestId: 'other' });
    await expect(bob.startCall(200)).rejects.toMatchObject({ code: 'gate_unavailable' });
    await bob.admit();
    await bob.startCall(200);
    expect(await alice.statement()).toMatchObject({ reserved: 110 });
    expect(await bob.statement()).toMatchObject({ reserved: 251 + 2 * 110 });
  });

  it('ActiveHolds.settleEnded leaves turns alone that are running', async () => {
    const holds = new ActiveHolds();
    const { admit, statement } = await openGate(1000, holds);
    const hold = await admit();
    await hold.check?.([used(20)]);
    await holds.settleEnded();
    expect(await statement()).toMatchObject({ balance: 1000, reserved: 110 });
    await hold.settle([used(20)]);
    expect(await statement()).toMatchObject({ balance: 980, reserved: 0 });
  });
});

describe('CreditGate while the ledger fails', () => {
  const test = usePluginTables('sqlite', credits);

  /** A database whose writes fail while it is down. */
  function openFailing() {
    const state = { isDown: false };
    const database: typeof test.database = {
      ...test.database,
      writeFor: async (owner, unit) => {
        if (state.isDown) throw new Error('no disk');
        return test.database.writeFor(owner, unit);
      },
    };
    const { reservations, ledger } = openLedger(database, { initialGrant: 1000 });
    const holds = new ActiveHolds();
    const settings = { prices, turnMinimum: 100, answerTokens: 50 };
    const gate = new CreditGate({ reservations, holds, ...settings });
    const owner = newOwner();
    const request = { owner, sessionId: 's', requestId: 'r', model: 'm', length: 40 };
    const call = { model: 'm', input: 500 };
    const prepare = async () => holds.find(request)?.prepare(call);
    return { state, ledger, holds, owner, prepare, admit: () => gate.admit(request) };
  }

  it('CreditGate admits no turn, and CreditHold prepares no call', async () => {
    const { state, admit, prepare } = openFailing();
    const hold = await admit();
    state.isDown = true;
    await expect(admit()).rejects.toThrow('no disk');
    await expect(hold.check?.([used(5)])).rejects.toThrow('no disk');
    await expect(prepare()).rejects.toMatchObject({ code: 'store_unavailable' });
  });

  it('a turn that is over is settled once the ledger works again', async () => {
    const { state, admit, holds, ledger, owner } = openFailing();
    const hold = await admit();
    state.isDown = true;
    await expect(hold.settle([used(70)])).rejects.toThrow('no disk');
    state.isDown = false;
    await holds.settleEnded();
    await holds.settleEnded();
    expect(await ledger.statement({ owner, limit: 5 })).toMatchObject({
      balance: 930,
      reserved: 0,
    });
  });
});

const countTokens = (messages: readonly ModelMessage[]) =>
  estimateRequest({
    agent: 'main',
    model: { id: 'm', vision: true },
    system: '',
    messages,
    tools: [],
  });
const none = countTokens([]);

// A token is four bytes, or a part of them; a line break stands between the parts of a message.
it.each<[string, ModelMessage, number]>([
  ['text', { role: 'user', content: 'x'.repeat(400) }, 101],
  ['text of other scripts', { role: 'user', content: '土'.repeat(400) }, 301],
  ['a note', { role: 'user', content: 'x'.repeat(400), note: 'x'.repeat(400) }, 201],
  ['parts of text', user(text(400), text(400)), 201],
  ['an image', user(file('image/png', 5_000_000)), 1501],
  ['a text file', user(text(400), file('text/plain', 4001)), 101 + 1001],
  ['a document', user(file('application/pdf', 100_001)), 5002],
  ['a short document', user(file('application/pdf', 100)), 1501],
  ['two files', user(file('image/png', 1), file('image/png', 1)), 1 + 3000],
  ['tool results', tool('x'.repeat(799), 'x'.repeat(400)), 300],
  ['the assistant', { role: 'assistant', text: 'x'.repeat(100), toolCalls: [] }, 26],
])('estimateRequest counts %s', (_, message, tokens) => {
  expect(countTokens([message]) - none).toBe(tokens);
});

it('estimateRequest counts what the assistant wrote and called', () => {
  const toolCalls = [{ id: '1', name: 'tool', input: 'x'.repeat(200) }];
  const message: ModelMessage = {
    role: 'assistant',
    text: 'x'.repeat(100),
    reasoning: 'x'.repeat(100),
    toolCalls,
  };
  const bytes = 202 + JSON.stringify(toolCalls).length;
  expect(countTokens([message]) - none).toBe(Math.ceil(bytes / 4));
});

it('estimateRequest counts the system text', () => {
  const request = { agent: 'main', model: { id: 'm', vision: true }, messages: [], tools: [] };
  expect(estimateRequest({ ...request, system: 'x'.repeat(401) }) - none).toBe(101);
});

it('estimateRequest counts the tools', () => {
  const tool = { name: 'tool', description: 'x'.repeat(400), inputSchema: { type: 'object' } };
  const request = { agent: 'main', model: { id: 'm', vision: true }, system: '', messages: [] };
  expect(estimateRequest({ ...request, tools: [tool] })).toBeGreaterThan(100);
});

function user(...content: readonly UserPart[]): ModelMessage {
  return { role: 'user', content };
}

function text(length: number): UserPart {
  return { type: 'text', text: 'x'.repeat(length) };
}

function file(mediaType: string, length: number): UserPart {
  return { type: 'file', mediaType, data: new Uint8Array(length) };
}

function tool(...outputs: readonly string[]): ModelMessage {
  const results = outputs.map((output) => ({ id: '1', name: 'tool', output, isError: false }));
  return { role: 'tool', results };
}
