import type { MessageGate, ModelUse, TurnHold } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { unmetered } from '../../agent/agent.js';
import { Hooks } from '../plugins/hooks.js';
import { Gates } from './gates.js';

const logger = pino({ level: 'silent' });
const request = { owner: 'did:a', sessionId: 's', requestId: 'r', model: 'm', length: 1 };
const use = (model: string, input: number): ModelUse => ({ model, input, output: 1, cached: 0 });

function createGates(...admits: readonly MessageGate['admit'][]): Gates {
  const plugins = admits.map((admit, i) => ({ name: `p${i}`, gate: { admit } }));
  const hooks = new Hooks(logger, 1000);
  const loaded = plugins as unknown as LoadedPlugin[];
  return new Gates({ plugins: loaded, hooks, budget: unmetered, logger });
}

/** A gate that holds every turn and records its usage. */
function holding(more: Partial<TurnHold> = {}) {
  const settled: (readonly ModelUse[])[] = [];
  const settle = async (used: readonly ModelUse[]) => void settled.push(used);
  return { settled, admit: async () => ({ settle, ...more }) };
}

it('Gates.admit admits everything if there is no gate', async () => {
  const gates = createGates();
  const account = await gates.admit(request);
  await account.check();
  await account.settle();
  await gates.close(0, 5_000);
});

it('TurnAccount adds up usage by model', async () => {
  const { admit, settled } = holding();
  const account = await createGates(admit).admit(request);
  for (const one of [use('a', 1), use('b', 2), use('a', 3)]) account.add(one);
  account.add({ model: 'c', input: 0, output: 0, cached: 0 });
  expect(account.total).toMatchObject({ input: 6, output: 3, cached: 0 });
  await Promise.all([account.settle(), account.settle()]);
  expect(settled).toEqual([[{ ...use('a', 4), output: 2 }, use('b', 2)]]);
});

it('TurnAccount.check throws after it was settled', async () => {
  const account = await createGates(holding().admit).admit(request);
  await account.settle();
  await expect(account.check()).rejects.toThrow('The turn is over');
});

it('TurnAccount.check asks all gates and throws the first error', async () => {
  const checks: string[] = [];
  const refusal = new OracleError('insufficient_credit');
  const account = await createGates(
    holding({ check: () => void checks.push('first') }).admit,
    holding({ check: () => Promise.reject(refusal) }).admit,
    holding({ check: () => void checks.push('third') }).admit,
  ).admit(request);
  await expect(account.check()).rejects.toBe(refusal);
  expect(checks).toEqual(['first']);
});

it('Gates.close stops waiting for a gate that cannot settle', async () => {
  let attempts = 0;
  const settle = () => {
    attempts += 1;
    return Promise.reject(new Error('no disk'));
  };
  const gates = createGates(async () => ({ settle }));
  const account = await gates.admit(request);
  const settling = account.settle();
  await gates.close(0, 5_000);
  await settling;
  const made = attempts;
  await gates.close(0, 5_000);
  expect(attempts).toBe(made);
});
