import { defineTool } from '@sibyl/plugin-kit';
import type { Session } from '@sibyl/protocol';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { TestUser } from './support/user.js';

const plugin = testPlugin('painter', {
  getTools: () => [
    defineTool({
      name: 'paint',
      description: 'Paints.',
      inputSchema: z.object({}),
      visibility: 'always',
      run: async (_, { interrupt }) => {
        const schema = z.object({ color: z.string().min(1), coats: z.number().default(1) });
        return interrupt({ kind: 'input_required', schema, data: 'Which color?' });
      },
    }),
    defineTool({
      name: 'sell',
      description: 'Sells.',
      inputSchema: z.object({}),
      visibility: 'always',
      needsApproval: true,
      run: () => 'sold',
    }),
  ],
});
const test = useControlledHost({ plugins: [plugin] });

/** A turn that waits because of a tool, and what it waits for. */
async function pause(tool: string) {
  const user = new TestUser(test.host);
  const { sessionId } = (await user.request('POST', '/sessions')).body;
  const reply = user.request('POST', `/messages/${sessionId}`, { body: { message: 'Go' } });
  (await test.model.next()).call({ name: tool, input: {} });
  const { pending } = (await reply).body;
  return { user, sessionId, id: pending[0].id as string };
}

const list = async (user: TestUser, sessionId: string) =>
  (await user.request('GET', `/questions?sessionId=${sessionId}`)).body.questions;
const answer = (user: TestUser, id: string, value: unknown) =>
  user.request('POST', `/questions/${id}`, { body: { value } });

it('GET /sessions says whether a paused turn asks the user, by a question or an approval', async () => {
  for (const tool of ['paint', 'sell']) {
    const { user, sessionId } = await pause(tool);
    const other = (await user.request('POST', '/sessions')).body.sessionId;
    const { sessions } = (await user.request('GET', '/sessions')).body;
    const find = (id: string) => sessions.find((each: Session) => each.sessionId === id);
    expect(find(sessionId)).toMatchObject({ turnStatus: 'paused', needsUser: true });
    expect(find(other)).not.toHaveProperty('needsUser');
  }
});

it('GET /questions lists what a tool asks; the answer continues the turn, and again names the same run', async () => {
  const { user, sessionId, id } = await pause('paint');
  expect(await list(user, sessionId)).toMatchObject([
    {
      ...{ id, kind: 'input_required', sessionId, data: 'Which color?' },
      schema: { type: 'object', required: ['color'] },
      expiresAt: expect.stringMatching(/Z$/),
    },
  ]);
  const answered = await answer(user, id, { color: 'red' });
  expect(answered).toMatchObject({ status: 200, body: { id, runId: expect.any(String) } });
  const turn = await test.model.next();
  expect(turn.results).toEqual(['{"color":"red","coats":1}']);
  expect((await answer(user, id, { color: 'red' })).body).toEqual(answered.body);
  turn.answer('Painted');
  const readLast = async () =>
    (await user.request('GET', `/messages/${sessionId}`)).body.messages.at(-1).content;
  await expect.poll(readLast).toBe('Painted');
  expect(await list(user, sessionId)).toEqual([]);
});

it('POST /questions/:id refuses what does not fit the schema, another answer, and other users', async () => {
  const { user, sessionId, id } = await pause('paint');
  const invalid = await answer(user, id, { color: '' });
  expect([invalid.status, invalid.body.code]).toEqual([400, 'validation_failed']);
  expect(invalid.body.message.join()).toContain('color');
  const stranger = new TestUser(test.host);
  expect(await list(stranger, sessionId)).toEqual([]);
  const foreign = await answer(stranger, id, { color: 'red' });
  expect([foreign.status, foreign.body.code]).toEqual([404, 'interrupt_not_found']);
  await answer(user, id, { color: 'red' });
  (await test.model.next()).answer('Painted');
  const late = await answer(user, id, { color: 'blue' });
  expect([late.status, late.body.code]).toEqual([409, 'interrupt_closed']);
});

it('approvals are not listed as questions, and no answer replaces the signed decision', async () => {
  const { user, sessionId, id } = await pause('sell');
  expect(await list(user, sessionId)).toEqual([]);
  const unsigned = await answer(user, id, true);
  expect([unsigned.status, unsigned.body.code]).toEqual([403, 'decision_unsigned']);
  const { body } = await user.request('GET', `/approvals?sessionId=${sessionId}`);
  expect(body.approvals).toMatchObject([{ id, status: 'pending' }]);
});

it('GET /questions needs a session', async () => {
  const { status, body } = await new TestUser(test.host).request('GET', '/questions');
  expect([status, body.code]).toEqual([400, 'validation_failed']);
  expect(body.message.join()).toContain('sessionId');
});
