import { createOracleClient, createSigner } from '@sibyl/client';
import { contractTests, createTestRuntime, TEST_USER } from '@sibyl/plugin-kit/testing';
import { generateSigner } from '@sibyl/ucan';
import { describe, expect, it } from 'vitest';
import { startHost } from '../../../packages/host/test/support/host.js';
import { todo } from '../src/todo.js';

it('the to-do plugin of the guide has a table, a tool, a sub-agent, a route and a limit', async () => {
  const runtime = await createTestRuntime({ plugins: [todo], config: { TODO_LIMIT: '2' } });
  const turn = await runtime.turn();
  expect(await turn.callTool('add_todo', { text: 'write' })).toEqual({ todos: ['write'] });
  expect(turn.progress).toEqual(['Adding write']);
  const request = { caller: TEST_USER, body: { text: 'test' } };
  expect((await runtime.request('POST', '/todos', request)).body).toEqual({
    todos: ['write', 'test'],
  });
  expect((await runtime.request('POST', '/todos', { body: request.body })).status).toBe(401);
  const invalid = await runtime.request('POST', '/todos', { caller: TEST_USER, body: {} });
  expect(invalid.body).toMatchObject({ statusCode: 400, code: 'validation_failed' });
  await expect(turn.callTool('add_todo', { text: 'more' })).rejects.toThrow(/is full/);
  expect((await turn.subAgent('planner')).prompt).toContain('write');
  await runtime.close();
});

it('clear_todos of the guide runs once the user has approved it, with a signature', async () => {
  const host = await startHost({ plugins: [todo] });
  const client = createOracleClient({ url: host.url, signer: createSigner(generateSigner()) });
  const { sessionId } = await client.sessions.create();
  await client.messages.send(sessionId, 'use add_todo with text: write');
  // The offline model calls the tool that a message names.
  for await (const part of client.stream(sessionId, 'use clear_todos')) void part;
  const [approval] = await client.approvals.list();
  if (!approval) throw new Error('nothing waits for approval');
  expect(approval.facts.tool).toBe('clear_todos');
  const before = await client.messages.send(
    (await client.sessions.create()).sessionId,
    'use add_todo with text: test',
  );
  expect(before.message.content).toContain('write, test');
  const { runId } = await client.approvals.approve(approval);
  let text = '';
  for await (const part of client.runs.join(runId))
    if (part.event === 'message') text += part.data.content;
  expect(text).toContain('Todos: none');
  client.close();
  await host.close();
});

describe('the plugin contract', () => {
  it.each(contractTests(todo))('$name', ({ run }) => run());
});
