import type { ModelMessage } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { ask, call, filterFrames, say } from './support/ask.js';
import { useWrappedHost } from './support/wrapped-host.js';

const { test, outer, inner, ran } = useWrappedHost();

const echoed = (text = 'hi') => call(['echo', { text }]);
const findFailures = (hook: string) => test.host.log.filter((line) => line.hook === hook);

describe('Middleware.beforeModel', () => {
  it('sees the changes of earlier middlewares, and may change system, messages and tools', async () => {
    outer.beforeModel = ({ system }) => ({ system: `${system}\n\nouter` });
    inner.beforeModel = ({ system, messages, tools, agent, model }) => {
      expect([agent, model.id]).toEqual(['main', 'openai-compatible/controlled']);
      const asked: ModelMessage = {
        role: 'user',
        content: [
          { type: 'text', text: 'changed' },
          { type: 'file', mediaType: 'image/png', data: new Uint8Array([1]) },
        ],
      };
      return {
        system: `${system}, inner`,
        messages: [...messages.slice(0, -1), asked],
        tools: [{ ...tools[0], description: 'Echoes' }] as typeof tools,
      };
    };
    const { turns } = await ask(test, [say()]);
    expect(turns[0]?.system).toMatch(/\n\nouter, inner$/);
    expect(JSON.stringify(turns[0]?.body.messages)).toContain('changed');
    expect(turns[0]?.body.tools[0].function.description).toBe('Echoes');
  });

  it('cannot add an unknown tool, and a removed tool cannot be called', async () => {
    outer.beforeModel = ({ tools }) => ({
      tools: [{ name: 'made_up', description: 'No', inputSchema: tools[0]?.inputSchema ?? {} }],
    });
    const { turns } = await ask(test, [echoed(), say()]);
    expect(turns[0]?.tools).toEqual([]);
    expect(ran).toEqual([]);
    expect(JSON.stringify(turns[1]?.body.messages)).toContain('There is no tool named echo');
  });

  it('ends the turn with the text of an OracleError', async () => {
    outer.beforeModel = () => {
      throw new OracleError('forbidden', { message: 'Not on Sundays' });
    };
    const exchange = await ask(test, []);
    expect(filterFrames(exchange, 'error')).toMatchObject([
      { error: 'Not on Sundays', kind: 'auth', retryable: false },
    ]);
    expect(exchange.frames.at(-1)?.data).toMatchObject({ status: 'failed' });
    const { status, body } = await test.alice.request('POST', `/messages/${exchange.sessionId}`, {
      body: { message: 'again' },
    });
    expect([status, body.message]).toEqual([403, 'Not on Sundays']);
  });
});

describe('Middleware.afterModel', () => {
  it('receives text, tool calls and usage, with its own context', async () => {
    const seen: unknown[] = [];
    outer.afterModel = (response, { config }) => void seen.push([response, config]);
    inner.afterModel = (response, { config }) => void seen.push([response.text, config]);
    await ask(test, [
      (turn) => {
        turn.say('One moment.');
        turn.call({ name: 'echo', input: { text: 'a' } });
      },
      say('Done.'),
    ]);
    const use = { model: 'openai-compatible/controlled', input: 7, output: 3, cached: 0 };
    const toolCalls = [{ id: expect.any(String), name: 'echo' }];
    expect(seen).toEqual([
      ['One moment.', { INNER_KEY: 'inner-secret' }],
      [{ agent: 'main', text: 'One moment.', toolCalls, use }, { OUTER_KEY: 'outer-secret' }],
      ['Done.', { INNER_KEY: 'inner-secret' }],
      [{ agent: 'main', text: 'Done.', toolCalls: [], use }, { OUTER_KEY: 'outer-secret' }],
    ]);
  });

  it('ends the turn with an OracleError', async () => {
    outer.afterModel = () => {
      throw new OracleError('insufficient_credit');
    };
    const exchange = await ask(test, [echoed()]);
    expect(ran).toEqual([]);
    expect(filterFrames(exchange, 'error')).toMatchObject([{ kind: 'billing' }]);
  });
});

describe('Middleware.wrapTool', () => {
  it('of the first plugin is outermost, and may change input and result', async () => {
    outer.wrapTool = async ({ input }, next, { toolCallId }) => {
      expect(toolCallId).not.toBe('');
      return { outer: await next({ ...input, text: `${input.text}, outer` }) };
    };
    inner.wrapTool = async ({ input }, next) => ({
      inner: await next({ ...input, text: `${input.text}, inner` }),
    });
    const { turns } = await ask(test, [echoed(), say()]);
    expect(JSON.parse(turns[1]?.results[0] ?? '')).toEqual({
      outer: { inner: { text: 'hi, outer, inner' } },
    });
  });

  it('may answer itself, or retry', async () => {
    outer.wrapTool = async ({ input }, next) =>
      input.text === 'cached' ? 'from the cache' : next(input).catch(() => next({ text: 'good' }));
    const { turns } = await ask(test, [call(['echo', { text: 'cached' }]), echoed('bad'), say()]);
    expect(turns[1]?.results).toEqual(['"from the cache"']);
    expect(turns[2]?.results).toEqual(['{"text":"good"}']);
    expect(ran).toEqual(['bad', 'good']);
  });

  it('sends an OracleError to the model, and the turn continues', async () => {
    outer.wrapTool = async () => {
      throw new OracleError('forbidden', { message: 'Ask the user first' });
    };
    const { turns, text } = await ask(test, [echoed(), say('May I?')]);
    expect(turns[1]?.results).toEqual(['{"error":"Ask the user first"}']);
    expect([ran, text]).toEqual([[], 'May I?']);
  });

  it('an error of the tool is not an error of the middleware', async () => {
    outer.wrapTool = async ({ input }, next) => next(input);
    const before = findFailures('wrapTool of out').length;
    const { turns } = await ask(test, [echoed('bad'), say()]);
    expect(turns[1]?.results).toEqual(['{"error":"the tool failed"}']);
    expect(findFailures('wrapTool of out').length).toBe(before);
  });
});
