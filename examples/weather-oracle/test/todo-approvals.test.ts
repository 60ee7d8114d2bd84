import { createOracleClient, createSigner } from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { expect, it } from 'vitest';
import { startHost } from '../../../packages/host/test/support/host.js';
import { todo } from '../src/todo.js';

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
