import { setTimeout as sleep } from 'node:timers/promises';
import { defineTool } from '@sibyl/plugin-kit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { join, openSession, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const shop = testPlugin('shop', {
  getTools: () => [
    defineTool({
      name: 'pay',
      description: 'Pays.',
      inputSchema: { type: 'object' },
      needsApproval: true,
      run: () => 'paid',
    }),
  ],
});

/** A conversation of ChatGPT with these questions. */
function conversation(questions: readonly string[]) {
  const nodes = questions.map((text, i) => ({
    id: `q${i}`,
    parent: i === 0 ? null : `q${i - 1}`,
    children: [],
    message: {
      id: `q${i}`,
      author: { role: 'user' },
      create_time: 1_700_000_001,
      content: { content_type: 'text', parts: [text] },
    },
  }));
  return {
    title: 'Rome',
    create_time: 1_700_000_000,
    update_time: 1_700_000_000,
    conversation_id: 'c1',
    current_node: nodes.at(-1)?.id,
    mapping: Object.fromEntries(nodes.map((node) => [node.id, node])),
  };
}

const importConversation = (user: TestUser, questions: readonly string[]) =>
  importInto(user, 'application/json', JSON.stringify([conversation(questions)]));

async function importInto(user: TestUser, type: string, body: string | ArrayBuffer) {
  const response = await fetch(`${user.host.url}/me/import`, {
    method: 'POST',
    headers: { ...user.headers, 'content-type': type },
    body,
  });
  const { id } = (await response.json()) as { id: string };
  for (;;) {
    const { body: job } = await user.request('GET', `/me/import/${id}`);
    if (job.status !== 'running') return job;
    await sleep(20);
  }
}

/** The questions of each session. */
async function readQuestions(user: TestUser): Promise<Map<string, string[]>> {
  const { body } = await user.request('GET', '/sessions');
  const all = new Map<string, string[]>();
  for (const { sessionId } of body.sessions) {
    const { body: list } = await user.request('GET', `/messages/${sessionId}`);
    const asked = list.messages.filter(({ type }: { type: string }) => type === 'human');
    all.set(
      sessionId,
      asked.map(({ content }: { content: string }) => content),
    );
  }
  return all;
}

/** The last message of each session. */
async function listAnswers(user: TestUser): Promise<string[]> {
  const { body } = await user.request('GET', '/sessions');
  const answers: string[] = [];
  for (const { sessionId } of body.sessions) {
    const { messages } = (await user.request('GET', `/messages/${sessionId}`)).body;
    answers.push(messages.at(-1).content);
  }
  return answers.sort();
}

const listQuestions = async (user: TestUser) =>
  [...(await readQuestions(user)).values()].map((asked) => asked.join(' ')).sort();

/** Continues the session with these questions. */
async function ask(user: TestUser, questions: readonly string[], message: string) {
  const sessions = [...(await readQuestions(user))];
  const found = sessions.find(([, asked]) => asked.join() === questions.join());
  const reply = await user.request('POST', `/messages/${found?.[0]}`, { body: { message } });
  expect(reply.status).toBe(200);
}

describe.each(engines)('imports of continued conversations on %s', (engine) => {
  let test: TestDatabase;
  let host: TestHost;

  beforeAll(async () => {
    test = await createTestDatabase(engine);
    host = await startHost({ env: test.env });
  });

  afterAll(async () => {
    await host?.close();
    await test?.drop();
  });

  it('POST /me/import loses no message of a conversation that was continued here, and stores it apart once', async () => {
    const user = new TestUser(host);
    await importConversation(user, ['a']);
    expect((await importConversation(user, ['a', 'b'])).stored).toMatchObject({ messages: 1 });
    expect(await listQuestions(user)).toEqual(['a b']);

    await ask(user, ['a', 'b'], 'here');
    expect((await importConversation(user, ['a', 'b'])).stored).toMatchObject({ messages: 0 });
    const newer = ['a', 'b', 'c', 'd'];
    expect((await importConversation(user, newer)).stored).toEqual({ sessions: 1, messages: 4 });
    expect((await importConversation(user, newer)).stored).toEqual({ sessions: 0, messages: 0 });
    expect(await listQuestions(user)).toEqual(['a b c d', 'a b here']);

    await ask(user, newer, 'again');
    const newest = [...newer, 'e', 'f'];
    expect((await importConversation(user, newest)).stored).toEqual({ sessions: 1, messages: 6 });
    expect(await importConversation(user, newest)).toMatchObject({ present: 7, refused: 0 });
    expect(await listQuestions(user)).toEqual(['a b c d again', 'a b c d e f', 'a b here']);
  });

  it('POST /me/import loses no answer that was exported while it waited for an approval', async () => {
    const model = await startControlledModel();
    const origin = await startHost({ env: model.env, plugins: [shop] });
    try {
      const user = new TestUser(origin);
      const there = user.at(host);
      const move = async () => {
        const { headers } = user;
        const archive = await fetch(`${origin.url}/me/export`, { headers });
        return importInto(there, 'application/zip', await archive.arrayBuffer());
      };
      const asked = await stream(user, await openSession(user), { message: 'Pay' });
      (await model.next()).call({ name: 'pay', input: {} });
      await asked.toEnd();
      expect((await move()).stored).toMatchObject({ sessions: 1, messages: 2 });
      const { approvals } = (await user.request('GET', '/approvals')).body;
      const denied = { body: { decision: 'deny' } };
      const { body } = await user.request('POST', `/approvals/${approvals[0].id}`, denied);
      (await model.next()).answer('Not paid');
      await (await join(user, body.runId, 0)).toEnd();
      expect((await move()).stored).toMatchObject({ sessions: 1, messages: 2 });
      expect((await move()).stored).toMatchObject({ sessions: 0, messages: 0 });
      expect(await listAnswers(there)).toEqual(['', 'Not paid']);
    } finally {
      await origin.close();
      model.close();
    }
  });
});
