import { expect, it } from 'vitest';
import { ToolCallAssembly } from './chat-stream.js';

function assemble(...pieces: unknown[]) {
  const assembly = new ToolCallAssembly();
  for (const piece of pieces) assembly.add(piece);
  return assembly.calls();
}

const call = (name: string | undefined, input: unknown) => ({ name, arguments: input });

it('ToolCallAssembly joins pieces by their index, even if they alternate', () => {
  expect(
    assemble(
      { index: 0, id: 'a', function: call('one', '') },
      { index: 1, id: 'b', function: call('two', '{"y"') },
      { index: 0, function: call(undefined, '{"x":1}') },
      { index: 1, function: { arguments: ':2}' } },
    ),
  ).toEqual([
    { id: 'a', name: 'one', input: '{"x":1}' },
    { id: 'b', name: 'two', input: '{"y":2}' },
  ]);
});

it('ToolCallAssembly treats a repeated name and id as the same call', () => {
  expect(
    assemble(
      { index: 0, id: 'a', function: call('one', '{"x"') },
      { index: 0, id: 'a', function: call('one', ':1}') },
    ),
  ).toEqual([{ id: 'a', name: 'one', input: '{"x":1}' }]);
});

it('ToolCallAssembly separates calls that all have index 0', () => {
  const calls = assemble(
    { index: 0, id: 'a', function: call('one', '{}') },
    { index: 0, id: 'b', function: call('two', '{}') },
  );
  expect(calls.map(({ name }) => name)).toEqual(['one', 'two']);
});

it('ToolCallAssembly separates calls without index and id, and adds ids', () => {
  const calls = assemble({ function: call('one', { x: 1 }) }, { function: call('two', null) });
  expect(calls).toMatchObject([
    { name: 'one', input: '{"x":1}' },
    { name: 'two', input: '{}' },
  ]);
  expect(new Set(calls.map(({ id }) => id)).size).toBe(2);
  expect(calls[0]?.id).toMatch(/^call_/);
});

it('ToolCallAssembly ignores pieces that are not calls', () => {
  expect(assemble(null, 'x', 7, {}, { function: null }, { index: 1, id: 'z' })).toEqual([]);
});

it('ToolCallAssembly limits the length of calls, one or many', () => {
  const endless = (piece: (n: number) => object) => () => {
    const assembly = new ToolCallAssembly();
    for (let n = 0; n < 200_000; n++) assembly.add(piece(n));
  };
  const input = 'x'.repeat(1000);
  expect(endless(() => ({ index: 0, function: { name: 'a', arguments: input } }))).toThrow();
  expect(endless((n) => ({ index: n, id: `${n}`, function: { name: 'a' } }))).toThrow();
});
