import type { InterruptRequest } from '@sibyl/plugin-kit';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { answered, MemoryJournal } from '../../../test/support/agent/memory-journal.js';
import { CallInterrupts } from '../../agent/call-interrupts.js';
import { buildInterruptKey } from '../../agent/steps.js';
import { createInterrupt } from './tool-interrupt.js';

const { signal } = new AbortController();

/** Asks a question in one attempt of a call; with an answer, in the attempt after that. */
async function ask(request: InterruptRequest, answer?: { readonly value: unknown }) {
  const first = new CallInterrupts({
    journal: new MemoryJournal(),
    path: '',
    callId: 'c1',
    asked: [],
  });
  const interrupt = createInterrupt(first.createCall('c1', signal));
  const thrown = await interrupt(request).catch((error: unknown) => error);
  if (!answer) return { thrown, pending: first.pending };
  const answers = new Map([[buildInterruptKey('', 'c1', 0), answered(answer.value)]]);
  const journal = new MemoryJournal([], answers);
  const second = new CallInterrupts({ journal, path: '', callId: 'c1', asked: first.pending });
  const result = await createInterrupt(second.createCall('c1', signal))(request);
  return { thrown, pending: second.pending, result };
}

/** So many levels of lists. */
function nest(levels: number): InterruptRequest['data'] {
  let value: InterruptRequest['data'] = 1;
  for (let level = 0; level < levels; level++) value = [value];
  return value;
}

describe('interrupt', () => {
  it.each(['tool_call', 'confirmation', 'input_required'] as const)(
    'asks a question of kind %s as JSON',
    async (kind) => {
      const schema = z.object({ ok: z.boolean() });
      const data = { question: 'Sure?', left: undefined };
      const { pending } = await ask({ kind, schema, data: data as never, expiresInSeconds: 0.5 });
      expect(pending).toMatchObject([{ kind, callId: 'c1', expiresInSeconds: 0.5 }]);
      expect(pending[0]?.schema).toMatchObject({
        type: 'object',
        properties: { ok: { type: 'boolean' } },
        required: ['ok'],
      });
      // As it will be after it was stored: otherwise its answer would not be found.
      expect(Object.keys(pending[0]?.data as object)).toEqual(['question']);
    },
  );

  it('asks without data and expiry', async () => {
    const { pending } = await ask({ kind: 'confirmation', schema: { type: 'boolean' } });
    expect(pending).toMatchObject([{ kind: 'confirmation', schema: { type: 'boolean' } }]);
    expect(pending[0]).not.toHaveProperty('expiresInSeconds');
  });

  it.each<[string, Partial<InterruptRequest>, string]>([
    ['of an unknown kind', { kind: 'approval' as never }, 'tool_call, confirmation, input'],
    ['that expires at once', { expiresInSeconds: 0 }, 'expiresInSeconds'],
    ['that has expired', { expiresInSeconds: -1 }, 'expiresInSeconds'],
    ['without a valid expiry', { expiresInSeconds: Number.NaN }, 'expiresInSeconds'],
    ['with data that is too long', { data: 'x'.repeat(128 * 1024) }, '131072 characters'],
    ['with too many values', { data: Array(10_000).fill(1) }, '10000 values'],
    ['with data that is too deep', { data: nest(101) }, '100 levels'],
    ['with a type that does not exist', { schema: { type: 'text' } }, 'schema of a question'],
    ['with an open reference', { schema: { $ref: '#/$defs/no' } }, 'missing definition'],
  ])('throws an error for the author of a question %s', async (_, wrong, message) => {
    const request = { kind: 'confirmation', schema: {}, ...wrong } as const;
    const { thrown, pending } = await ask(request);
    expect(thrown).toBeInstanceOf(TypeError);
    expect(String(thrown)).toContain(message);
    expect(pending).toEqual([]);
  });

  it('asks questions as large as they can be', async () => {
    const large = ['x'.repeat(128 * 1024 - 2), Array(9_999).fill(1), nest(100)];
    for (const data of large)
      expect((await ask({ kind: 'confirmation', schema: {}, data })).pending).toHaveLength(1);
  });

  it('returns the answer as a Standard Schema reads it', async () => {
    const schema = z.object({ ok: z.boolean(), note: z.string().trim().default('none') });
    const request = { kind: 'input_required', schema } as const;
    const { result, pending } = await ask(request, { value: { ok: true } });
    expect(result).toEqual({ ok: true, note: 'none' });
    expect(pending).toEqual([]);
  });

  it('returns the answer to a JSON Schema as it is', async () => {
    const request = { kind: 'input_required', schema: { type: 'object' } } as const;
    expect((await ask(request, { value: { a: [1] } })).result).toEqual({ a: [1] });
  });

  it('throws what is wrong with an answer that the schema does not accept', async () => {
    const schema = z
      .object({ from: z.number(), to: z.number() })
      .refine(({ from, to }) => from < to, { message: 'is before', path: ['to'] })
      .refine(({ from }) => from > 0, { message: 'is too small', path: ['from'] });
    const asked = ask({ kind: 'input_required', schema }, { value: { from: -1, to: -2 } });
    await expect(asked).rejects.toThrow(
      /does not match the schema of the question: to.*is before; from.*is too small/,
    );
  });
});
