import {
  definePlugin,
  defineRoute,
  defineTool,
  type Middleware,
  type OraclePlugin,
  type PluginManifestInput,
  type SetupContext,
  sharedKey,
  type ToolContext,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { createTestRuntime, TEST_USER } from '@sibyl/plugin-kit/testing';
import { toStandardJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import * as v from 'valibot';
import { expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';

const manifest = { title: 't', summary: 's', whenToUse: ['w'], category: 'test' };
const declared = (_: () => unknown) => undefined;

const add = defineTool({
  name: 'add',
  description: 'Adds two numbers for the user',
  inputSchema: z.object({ a: z.number(), b: z.number().default(1) }),
  run: ({ a, b }) => a + b,
});

it('defineTool keeps the types of its schemas', () => {
  declared(() => {
    const turn = null as never as ToolContext;
    expectTypeOf(add.run).parameter(0).toEqualTypeOf<{ a: number; b: number }>();
    // @ts-expect-error: the input must match the schema.
    add.run({ a: '1', b: 1 }, turn);
    defineTool({
      name: 'x',
      description: 'x',
      inputSchema: z.object({}),
      outputSchema: z.object({ n: z.number() }),
      // @ts-expect-error: the result must match the output schema.
      run: () => ({ n: 'text' }),
    });
  });
});

it('interrupt returns what the schema of the question describes', () => {
  declared(async () => {
    const { interrupt } = null as never as ToolContext;
    const schema = z.object({ ok: z.boolean(), note: z.string().default('') });
    const answer = await interrupt({ kind: 'confirmation', schema });
    expectTypeOf(answer).toEqualTypeOf<{ ok: boolean; note: string }>();
    const age = await interrupt({ kind: 'input_required', schema: v.number() });
    expectTypeOf(age).toBeNumber();
    const any = await interrupt({ kind: 'tool_call', schema: { type: 'string' } });
    expectTypeOf(any).toBeUnknown();
    // @ts-expect-error: there is no such kind.
    await interrupt({ kind: 'other', schema });
  });
});

it('a manifest can be declared with `as const`, such as in a class', () => {
  class Declared implements OraclePlugin {
    readonly name = 'declared';
    readonly version = '1.0.0';
    readonly manifest = { ...manifest, whenToUse: ['w'], visibility: 'always' } as const;
  }
  expect(new Declared().manifest.whenToUse).toEqual(['w']);
});

it('a manifest in a variable needs no `as const` if the variable has its type', () => {
  const typed: PluginManifestInput = { ...manifest, visibility: 'silent' };
  const checked = { ...manifest, visibility: 'silent' } satisfies PluginManifestInput;
  definePlugin({ name: 'typed', version: '1.0.0', manifest: typed });
  definePlugin({ name: 'checked', version: '1.0.0', manifest: checked });
  // @ts-expect-error: there is no such visibility.
  definePlugin({ name: 'x', version: '1.0.0', manifest: { ...manifest, visibility: 'hidden' } });
});

it('tool, subAgent and route of the context know the services and the configuration of the plugin', async () => {
  const plugin = definePlugin({
    name: 'typed',
    version: '1.0.0',
    manifest,
    configSchema: z.object({ TYPED_LIMIT: z.coerce.number().default(3).describe('Limit') }),
    setup: () => ({ names: new Set<string>() }),
    getTools: ({ tool }) => [
      tool({
        name: 'has_name',
        description: 'x',
        inputSchema: z.object({ name: z.string() }),
        outputSchema: z.boolean(),
        needsApproval: ({ name }, { services, config }) =>
          services.names.size > config.TYPED_LIMIT && name !== '',
        run: ({ name }, { services, config }) => {
          expectTypeOf(services.names).toEqualTypeOf<Set<string>>();
          expectTypeOf(config.TYPED_LIMIT).toBeNumber();
          return services.names.has(name);
        },
      }),
    ],
    getRequestTools: ({ tool }) => [
      tool({
        name: 'count_names',
        description: 'x',
        inputSchema: z.object({}),
        // @ts-expect-error: the services have no such member.
        run: (_, { services }) => services.missing,
      }),
    ],
    getSubAgents: ({ tool, subAgent }) => [
      subAgent({
        name: 'namer',
        description: 'x',
        prompt: ({ services }) => `There are ${services.names.size} names.`,
        tools: [
          tool({
            name: 'add_name',
            description: 'x',
            inputSchema: z.object({ name: z.string() }),
            run: ({ name }, { services }) => services.names.add(name).size,
          }),
        ],
      }),
    ],
    routes: ({ route }) => [
      route({
        method: 'PUT',
        path: '/names/:name',
        summary: 'Add a name',
        reply: z.object({ count: z.number() }),
        handler: ({ caller, params, services, config }) => {
          expectTypeOf(caller.did).toBeString();
          expectTypeOf(config.TYPED_LIMIT).toBeNumber();
          return { count: services.names.add(params.name).size };
        },
      }),
      route({
        method: 'GET',
        path: '/names',
        summary: 'List the names',
        // @ts-expect-error: the services have no such member.
        handler: ({ services }) => services.missing,
      }),
    ],
  });
  const runtime = await createTestRuntime({ plugins: [plugin] });
  const { body } = await runtime.request('PUT', '/names/Ada', { caller: TEST_USER });
  expect(body).toEqual({ count: 1 });
  await runtime.close();
});

it('wrapModel cannot change the answer', () => {
  declared(() => {
    const wraps: Middleware = {
      name: 'm',
      wrapModel: (request, next) => next({ ...request, system: 'x' }),
    };
    const changes: Middleware = {
      name: 'm',
      // @ts-expect-error: a changed copy is not a response.
      wrapModel: async (request, next) => ({ ...(await next(request)), text: 'changed' }),
    };
    return [wraps, changes];
  });
});

it('fetch of the context can be passed where `typeof fetch` is expected', () => {
  declared(() => {
    const { fetch: own } = null as never as SetupContext;
    expectTypeOf(own).toExtend<typeof fetch>();
  });
});

it('definePlugin passes the services of setup to its hooks', () => {
  const plugin = definePlugin({
    name: 'typed',
    version: '1.0.0',
    manifest,
    configSchema: z.object({ TYPED_LIMIT: z.coerce.number().default(3).describe('Limit') }),
    setup: ({ config }) => ({ limit: config.TYPED_LIMIT, names: new Set<string>() }),
    close: ({ names }) => names.clear(),
    getTools: ({ services }) => {
      expectTypeOf(services).toEqualTypeOf<{ limit: number; names: Set<string> }>();
      return [
        defineTool({
          name: 'inline',
          description: 'x',
          inputSchema: z.object({}),
          run: (_, turn) => {
            expectTypeOf(turn.services.limit).toBeNumber();
            return turn.services.names.size;
          },
        }),
      ];
    },
    getRequestTools: (turn) => {
      expectTypeOf(turn.services.names).toEqualTypeOf<Set<string>>();
      expectTypeOf(turn.config.TYPED_LIMIT).toBeNumber();
      return [];
    },
    getMiddlewares: () => [
      {
        name: 'm',
        wrapTool: (call, next, { services }) => {
          expectTypeOf(services.limit).toBeNumber();
          return next(call);
        },
      },
    ],
    routes: ({ services }) => [
      defineRoute({
        method: 'POST',
        path: '/typed/:id/items/:item',
        summary: 'x',
        query: z.object({ page: z.coerce.number() }),
        body: z.object({ text: z.string() }),
        reply: z.object({ count: z.number() }),
        handler: ({ caller, params, query, body }) => {
          expectTypeOf(caller.did).toBeString();
          expectTypeOf(params.id).toBeString();
          expectTypeOf(params.item).toBeString();
          // @ts-expect-error: the path has no such parameter.
          void params.other;
          expectTypeOf(query.page).toBeNumber();
          expectTypeOf(body.text).toBeString();
          return { count: services.limit };
        },
      }),
      defineRoute({
        method: 'GET',
        path: '/typed',
        auth: 'public',
        summary: 'x',
        reply: z.object({ count: z.number() }),
        // @ts-expect-error: the reply must match its schema.
        handler: ({ caller }) => {
          expectTypeOf(caller).toBeUndefined();
          return { count: 'many' };
        },
      }),
    ],
  });
  expect(plugin.name).toBe('typed');
});

it('sharedKey types what plugins share', () => {
  const CREDITS = sharedKey<{ balance(): number }>('credits');
  // @ts-expect-error: the value must have the type of the key.
  CREDITS.share({ balance: () => 'much' });
  declared(() => {
    const turn = null as never as TurnContext;
    expectTypeOf(turn.shared.get(CREDITS)?.balance()).toEqualTypeOf<number | undefined>();
    expectTypeOf(turn.shared.require(CREDITS).balance()).toBeNumber();
  });
});

it.each([
  ['zod', z.object({ city: z.string() })],
  ['ArkType', type({ city: 'string' })],
  ['valibot', toStandardJsonSchema(v.object({ city: v.string() }))],
])('defineTool accepts schemas of %s', async (_, inputSchema) => {
  const greet = defineTool({
    name: 'greet',
    description: 'Greets a city politely',
    inputSchema,
    run: ({ city }) => `Hello, ${city}`,
  });
  const plugin = definePlugin({ name: 'any', version: '1.0.0', manifest, getTools: () => [greet] });
  const runtime = await createTestRuntime({ plugins: [plugin] });
  const turn = await runtime.turn();
  expect(await turn.callTool(greet, { city: 'Oslo' })).toBe('Hello, Oslo');
  await expect(turn.callTool('greet', { city: 7 })).rejects.toThrow(
    /Invalid input for greet: city/,
  );
  await runtime.close();
});

it('a schema without JSON Schema is rejected at startup, with the tool and the fix', async () => {
  const tool = defineTool({
    name: 'greet',
    description: 'Greets a city politely',
    inputSchema: v.object({ city: v.string() }),
    run: ({ city }) => city,
  });
  const plugin = definePlugin({ name: 'bad', version: '1.0.0', manifest, getTools: () => [tool] });
  await expect(createTestRuntime({ plugins: [plugin] })).rejects.toThrow(
    /tool greet: .*valibot.*toStandardJsonSchema/,
  );
});

it('a tool that is an async generator reports progress, and outputSchema checks its result', async () => {
  const count = defineTool({
    name: 'count',
    description: 'Counts to a number slowly',
    inputSchema: z.object({ to: z.number() }),
    outputSchema: z.object({ total: z.number().max(2) }),
    async *run({ to }) {
      for (let n = 1; n <= to; n++) yield `${n} of ${to}`;
      return { total: to };
    },
  });
  const plugin = definePlugin({ name: 'c', version: '1.0.0', manifest, getTools: () => [count] });
  const runtime = await createTestRuntime({ plugins: [plugin] });
  const turn = await runtime.turn();
  expect(await turn.callTool(count, { to: 2 })).toEqual({ total: 2 });
  expect(turn.progress).toEqual(['1 of 2', '2 of 2']);
  await expect(turn.callTool('count', { to: 3 })).rejects.toThrow(/output schema: total/);
  await runtime.close();
});

it('when knows what a turn may have, and the configuration', () => {
  declared(() => {
    const configSchema = z.object({ PAGER_URL: z.string().optional() });
    const pager = { name: 'pager', version: '1.0.0', manifest, configSchema };
    definePlugin({ ...pager, when: { clients: ['pager'], request: ['tools'], attachments: true } });
    definePlugin({
      ...pager,
      when: ({ config }) => {
        expectTypeOf(config.PAGER_URL).toEqualTypeOf<string | undefined>();
        return config.PAGER_URL ? undefined : { user: ['matrix'] };
      },
    });
    // @ts-expect-error: the message cannot have that.
    definePlugin({ ...pager, when: { request: ['actions'] } });
    // @ts-expect-error: there is no such condition.
    definePlugin({ ...pager, when: { client: ['pager'] } });
  });
});
