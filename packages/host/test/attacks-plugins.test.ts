import { Controller, Get, Module } from '@nestjs/common';
import { defineTool, type Tool } from '@sibyl/plugin-kit';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { ask, call, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { openSession } from './support/stream.js';

/** What throws again when it is looked at. */
const hostileProxy = () => {
  const refuse = () => {
    throw new Error('hands off');
  };
  return new Proxy({}, { has: refuse, get: refuse, ownKeys: refuse, getPrototypeOf: refuse });
};

const withGetter = (holder: object, field: string) =>
  Object.defineProperty(holder, field, {
    enumerable: true,
    get: () => {
      throw new Error('hands off');
    },
  });

const thrown: Readonly<Record<string, () => unknown>> = {
  nothing: () => undefined,
  'a symbol': () => Symbol('fault'),
  'an object that cannot be read': () => withGetter({}, 'message'),
  'an error that cannot be read': () => withGetter(new Error('x'), 'stack'),
  'an error with a field that cannot be read': () => withGetter(new Error('x'), 'detail'),
  'a hostile proxy': hostileProxy,
};

const nested = (depth: number) => JSON.parse('['.repeat(depth) + ']'.repeat(depth));
const looped = () => {
  const loop: Record<string, unknown> = {};
  return Object.assign(loop, { left: loop, right: loop });
};

const given: Readonly<Record<string, () => unknown>> = {
  'ten thousand levels': () => nested(10_000),
  'itself, twice': looped,
  'thirty million characters': () => 'x'.repeat(30_000_000),
  'what cannot be written': () => ({ toJSON: hostileProxy }),
  'what cannot be listed': hostileProxy,
  'half a character': () => '\ud800',
  'a function': () => () => 1,
};

let place = '';
let act: () => unknown = () => undefined;
afterEach(() => {
  place = '';
});

const failAt = (here: string) => {
  if (place === here) throw act();
};

const AnyInput = z.object({}).loose();
const tool = (name: string, run: Tool['run']) =>
  defineTool({ name, description: 'Does what a test asks for', inputSchema: AnyInput, run });

@Controller('faulty')
class FaultyController {
  @Get()
  get() {
    failAt('a route');
    return {};
  }
}

@Module({ controllers: [FaultyController] })
class FaultyModule {}

const faulty = testPlugin('faulty', {
  getNestModules: () => [FaultyModule],
  getTools: () => [
    tool('give', () => act()),
    tool('fail', () => failAt('a tool')),
    tool('emit_many', (_, { emit }) => {
      const args = looped();
      emit.renderComponent({ eventId: 'e', componentName: 'c', args, status: 'done' });
      for (let i = 0; i < 5000; i++) emit.router({ step: `${i}` });
    }),
  ],
  getRequestTools: async () => {
    failAt('getRequestTools');
    return [];
  },
  getSharedState: () => ({ faultyState: () => failAt('getSharedState') }),
  getMessageGate: () => ({
    admit: async () => {
      failAt('admit');
      return { check: () => failAt('check'), settle: async () => undefined };
    },
  }),
  getMiddlewares: () => [
    {
      name: 'faulty',
      wrapModel: async (request, next) => {
        failAt('wrapModel');
        const response = await next(request);
        failAt('wrapModel after next');
        return response;
      },
      wrapTool: async (call, next) => {
        failAt('wrapTool');
        return next(call);
      },
    },
  ],
});

const test = useControlledHost({ bundled: [], plugins: [faulty] });

const hooks = ['getRequestTools', 'getSharedState', 'wrapTool'];

describe.each(Object.entries(thrown))('a plugin that throws %s', (_, make) => {
  it.each(hooks)('from %s affects only its part', async (hook) => {
    place = hook;
    act = make;
    const { text } = await ask(test, [call(['fail']), say('survived')]);
    expect(text).toBe('survived');
  });

  it.each(['wrapModel', 'wrapModel after next'])('from %s fails the turn', async (hook) => {
    place = hook;
    act = make;
    const exchange = await ask(test, hook === 'wrapModel after next' ? [say('unseen')] : []);
    expect(filterFrames(exchange, 'error')).toMatchObject([{ kind: 'server', retryable: true }]);
  });

  it('from getMessageGate rejects the turn', async () => {
    place = 'admit';
    act = make;
    const sessionId = await openSession(test.alice);
    const sent = { body: { message: 'hello' } };
    const { status, body } = await test.alice.request('POST', `/messages/${sessionId}`, sent);
    expect([status, body.code]).toEqual([503, 'gate_unavailable']);
  });

  it('from the check of a gate ends the turn', async () => {
    place = 'check';
    act = make;
    const exchange = await ask(test, []);
    expect(filterFrames(exchange, 'error')).toMatchObject([{ kind: 'server', retryable: true }]);
  });

  it('from a tool fails the call', async () => {
    place = 'a tool';
    act = make;
    const exchange = await ask(test, [call(['fail']), say('survived')]);
    expect(exchange.text).toBe('survived');
    expect(filterFrames(exchange, 'tool_call').at(-1)).toMatchObject({ status: 'error' });
  });

  it('from a route fails the request', async () => {
    place = 'a route';
    act = make;
    const { status, body } = await test.alice.request('GET', '/faulty');
    expect([status, body.code]).toEqual([500, 'internal_error']);
  });
});

describe('a tool that returns', () => {
  it.each(Object.entries(given))('%s does not affect the turn', async (_, make) => {
    act = make;
    const exchange = await ask(test, [call(['give']), say('survived')]);
    expect(exchange.text).toBe('survived');
    const { output } = filterFrames(exchange, 'tool_call').at(-1);
    expect(output.length).toBeLessThanOrEqual(100_000);
    expect(() => JSON.parse(output)).not.toThrow();
  });
});

it('emit drops an event with a circular payload, and sends the rest', async () => {
  const exchange = await ask(test, [call(['emit_many']), say('survived')]);
  expect(exchange.text).toBe('survived');
  expect(filterFrames(exchange, 'render_component')).toEqual([]);
  expect(filterFrames(exchange, 'router_update')).toHaveLength(5000);
});
