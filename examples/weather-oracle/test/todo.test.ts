import { contractTests, createTestRuntime, TEST_USER } from '@sibyl/plugin-kit/testing';
import { describe, expect, it } from 'vitest';
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

describe('the plugin contract', () => {
  it.each(contractTests(todo))('$name', ({ run }) => run());
});
