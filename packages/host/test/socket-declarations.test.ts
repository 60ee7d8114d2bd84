import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { chart, listTools, scroll } from './support/page-tools.js';
import { openSession, stream } from './support/stream.js';

const test = useControlledHost();

describe('tools that a page declares', () => {
  async function offered(sessionId: string, body: Parameters<typeof stream>[2]) {
    const live = await stream(test.alice, sessionId, body);
    const turn = await test.model.next();
    turn.say('Yes?');
    turn.finish();
    return { tools: listTools(turn), body: turn.body, frames: await live.toEnd() };
  }

  it('are kept for the session, until the page declares others', async () => {
    const sessionId = await openSession(test.alice);
    const has = async (body: object) => {
      const { tools } = await offered(sessionId, { message: 'hi', ...body });
      return [tools.includes('scroll'), tools.includes('chart')];
    };
    expect(await has({ tools: [scroll], agActions: [chart] })).toEqual([true, true]);
    expect(await has({})).toEqual([true, true]);
    expect(await has({ tools: [] })).toEqual([false, true]);
    expect(await has({})).toEqual([false, true]);
    expect(await has({ tools: [scroll], agActions: [] })).toEqual([true, false]);
    const other = await openSession(test.alice);
    expect((await offered(other, { message: 'hi' })).tools).not.toContain('scroll');
  });

  it('may have JSON Schema of draft-07 or 2020-12, or an empty one', async () => {
    const sessionId = await openSession(test.alice);
    const by = { type: 'integer', minimum: 1 };
    const draft7 = {
      $schema: 'http://json-schema.org/draft-07/schema#',
      type: 'object',
      properties: { by: { $ref: '#/definitions/by' } },
      definitions: { by },
    };
    const draft2020 = {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: { pair: { type: 'array', prefixItems: [by, by] }, by: { $ref: '#/$defs/by' } },
      $defs: { by },
    };
    const empty = { $schema: 'https://json-schema.org/draft/2020-12/schema' };
    const tools = [draft7, draft2020, empty, {}].map((schema, i) => ({
      name: `tool_${i}`,
      description: 'A tool',
      schema,
    }));
    const result = await offered(sessionId, { message: 'hi', tools });
    for (const { name } of tools) expect(result.tools).toContain(name);
    expect(result.frames.some(({ event }) => event === 'warning')).toBe(false);
    const parameters = result.body.tools.map(
      (tool: { function: { parameters: unknown } }) => tool.function.parameters,
    );
    expect(JSON.stringify(parameters)).not.toContain('$ref');
  });

  it('are omitted with a warning if they are invalid', async () => {
    const sessionId = await openSession(test.alice);
    const bad = (name: string, schema: object) => ({ name, description: 'x', schema });
    const tools = [
      scroll,
      bad('text', { type: 'string' }),
      bad('dangling', { type: 'object', properties: { a: { $ref: '#/nowhere' } } }),
      bad('two words', {}),
      bad('scroll', {}),
      bad('load_capability', {}),
    ];
    const result = await offered(sessionId, { message: 'hi', tools });
    expect(result.tools.filter((name) => name === 'scroll')).toHaveLength(1);
    for (const name of ['text', 'dangling', 'two words']) expect(result.tools).not.toContain(name);
    const warnings = result.frames.filter(({ event }) => event === 'warning');
    expect(warnings.map(({ data }) => data.code)).toEqual(Array(5).fill('tool_left_out'));
    expect(result.frames.at(-1)?.data.status).toBe('finished');
  });
});
