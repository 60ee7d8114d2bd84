import { defineSubAgent } from '@sibyl/plugin-kit';
import { expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

/** The price of the answer that a call is expected to give, beside what it sends. */
const ANSWER = 10_000;

const researcher = defineSubAgent({
  name: 'researcher',
  description: 'Looks things up',
  prompt: 'You look things up.',
});

const test = useControlledHost({
  env: {
    CREDITS_ENABLED: 'true',
    CREDITS_PRICES: JSON.stringify({ '*': { input: 1_000_000, output: 10_000_000 } }),
    CREDITS_INITIAL_GRANT: '300000',
    CREDITS_TURN_MINIMUM: '1',
    CREDITS_ANSWER_TOKENS: String(ANSWER / 10),
  },
  plugins: [testPlugin('library', { getSubAgents: () => [researcher] })],
});

it('GET /credits shows credit set aside for every one of several sub-agents of one name', async () => {
  const alice = new TestUser(test.host);
  const reserved = async () => (await alice.request('GET', '/credits')).body.reserved;
  const live = await stream(alice, await openSession(alice), { message: 'Compare two rivers' });
  const main = await test.model.next();
  const tasks = ['Nile', 'Amazon', 'Danube'];
  const before = await reserved();
  expect(before).toBeLessThan(2 * ANSWER);
  main.call(...tasks.map((task) => ({ name: 'call_researcher_agent', input: { task } })));
  const agents = [await test.model.next(), await test.model.next(), await test.model.next()];
  expect(await reserved()).toBeGreaterThan(3 * ANSWER);
  for (const agent of agents) agent.answer('long');
  (await test.model.next()).answer('Both are long');
  await live.toEnd();
  await expect.poll(reserved).toBe(0);
});
