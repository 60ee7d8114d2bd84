import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { BEHIND_PROXY, makeKnown, Neighbor } from './support/neighbors.js';
import { openSession } from './support/stream.js';

let model: ControlledModel;
let host: TestHost;
beforeEach(async () => {
  model = await startControlledModel();
});
afterEach(async () => {
  await host.close();
  model.close();
});

const start = async (env: Record<string, string>) => {
  host = await startHost({ env: { ...model.env, ...BEHIND_PROXY, ...env } });
};

const neighbors = (count: number, address: string) =>
  Array.from({ length: count }, () => new Neighbor(host, address));

const countAnswers = (answers: readonly { readonly status: number; readonly body: { readonly code?: string } }[]) => {
  const counts: Record<string, number> = {};
  for (const { status, body } of answers) {
    const key = `${status} ${body.code ?? ''}`.trim();
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
};

describe('POST /messages', () => {
  const send = async (user: Neighbor) =>
    user.request('POST', `/messages/${await openSession(user)}`, { body: { message: 'now' } });

  /** Sends messages that the model does not answer; returns the refused ones and a function that ends the others. */
  async function flood(users: readonly Neighbor[], expected: number) {
    const refused: Awaited<ReturnType<typeof send>>[] = [];
    const sent = users.map((user) => send(user).then((answer) => void refused.push(answer)));
    const turns: ModelTurn[] = [];
    for (let i = 0; i < expected; i++) turns.push(await model.next());
    await expect.poll(() => refused.length).toBe(users.length - expected);
    return {
      refused: countAnswers(refused),
      end: async () => {
        for (const turn of turns) turn.answer('late');
        await Promise.all(sent);
      },
    };
  }

  /** The answer of the model arrives while the flood goes on. */
  async function isServed(user: Neighbor) {
    const reply = send(user);
    (await model.next()).answer('done');
    expect(await reply).toMatchObject({ status: 200, body: { message: { content: 'done' } } });
  }

  it('refuses new users of an address beyond its share with 429 address_busy, and serves others', async () => {
    await start({ TURNS_MAX: '40' });
    const { refused, end } = await flood(neighbors(60, '192.0.2.1'), 10);
    expect(refused).toEqual({ '429 address_busy': 50 });
    await isServed(new Neighbor(host, '192.0.2.2'));
    await isServed(new Neighbor(host, '192.0.2.3'));
    await end();
    await isServed(new Neighbor(host, '192.0.2.1'));
  });

  it('serves known users of an address that new ones attack from', async () => {
    await start({ TURNS_MAX: '40' });
    const known = neighbors(10, '192.0.2.1');
    makeKnown(host, known);
    const { end } = await flood(neighbors(60, '192.0.2.1'), 10);
    for (const user of known) await isServed(user);
    await end();
  });

  it('leaves known users a share that no number of addresses takes', async () => {
    await start({ TURNS_MAX: '40' });
    const known = new Neighbor(host, '192.0.2.250');
    makeKnown(host, [known]);
    const strangers = Array.from({ length: 200 }, (_, i) => new Neighbor(host, `192.0.2.${i}`));
    const { refused, end } = await flood(strangers, 30);
    expect(refused).toEqual({ '503 host_busy': 170 });
    await isServed(known);
    await end();
  });

  it('serves 100 new users of one address while one of them takes all of its own turns', async () => {
    await start({});
    const [attacker, ...honest] = neighbors(100, '192.0.2.1') as [Neighbor, ...Neighbor[]];
    const { refused, end } = await flood(Array(60).fill(attacker), 20);
    expect(refused).toEqual({ '429 too_many_turns': 40 });
    const replies = honest.map(send);
    for (const _ of honest) (await model.next()).answer('done');
    expect(countAnswers(await Promise.all(replies))).toEqual({ '200': 99 });
    await end();
  });
});

describe('the limit of requests of an address', () => {
  it('is not used up for known users by new ones', async () => {
    await start({ RATE_LIMIT_PER_MINUTE: '20' });
    const known = new Neighbor(host, '192.0.2.1');
    makeKnown(host, [known]);
    const list = (user: Neighbor) => user.request('GET', '/sessions');
    const answers = await Promise.all(
      neighbors(300, '192.0.2.1').flatMap((user) => [list(user), list(user)]),
    );
    expect(countAnswers(answers)['429 rate_limited']).toBeGreaterThan(300);
    expect((await list(known)).status).toBe(200);
  });
});
