import type { Caller } from '@sibyl/plugin-kit';
import type { CallerTurns, Surface } from '@sibyl/plugin-kit/surface';
import { describe, expect, it, vi } from 'vitest';
import { RunAgentInput, Runs } from './runs.js';

const withParameters = (...parameters: unknown[]) => ({
  threadId: 't',
  runId: 'r',
  messages: [{ id: 'm', role: 'user', content: 'Hello' }],
  tools: parameters.map((each) => ({ name: 'tool', description: 'A tool', parameters: each })),
});
const nest = (levels: number): object => (levels === 0 ? {} : { a: nest(levels - 1) });

/** The tools that the host is given. */
async function start(input: RunAgentInput) {
  const run = { runId: 'r', sessionId: 's', status: 'running' };
  const continueThread = vi.fn<CallerTurns['continueThread']>(async () => run as never);
  const turns = { findThread: async () => undefined, continueThread, read: vi.fn() };
  const surface = { for: () => turns } as unknown as Surface;
  const call = { caller: {} as Caller, signal: new AbortController().signal };
  await new Runs({ surface, pageUrl: '' }).start(call, input);
  return continueThread.mock.calls[0]?.[0].clientTools?.map(({ schema }) => schema);
}

describe('parameters of a tool in POST /v2/agent/run', () => {
  it.each([32, 2_000])('are refused if they nest %s levels deep', (levels) => {
    const { error } = RunAgentInput.safeParse(withParameters({ properties: nest(levels) }));
    expect(error?.issues).toMatchObject([
      { path: ['tools', 0, 'parameters'], message: 'may nest at most 32 levels' },
    ]);
  });

  it('are kept as they are; what is not an object allows any input', async () => {
    const schema = { type: 'object', properties: nest(31), required: [null, 1, 'a'] };
    const sent = JSON.stringify(withParameters(schema, undefined, null, 'text', [1]));
    const input = RunAgentInput.parse(JSON.parse(sent));
    const any = { type: 'object' };
    expect(await start(input)).toEqual([schema, any, any, any, any]);
  });
});
