import {
  definePlugin,
  defineRoute,
  defineTool,
  type InterruptRequest,
  type OraclePlugin,
  sharedKey,
} from '@sibyl/plugin-kit';
import type { TurnCondition } from '@sibyl/plugin-kit/host';
import {
  createTestRuntime,
  TEST_USER,
  type TestRuntime,
  type TestTurnOptions,
  testInvocation,
} from '@sibyl/plugin-kit/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import * as mini from 'zod/mini';
import { NOTE_COUNT, notesPlugin } from './notes-plugin.js';

const alice = 'did:key:zAlice';
let runtime: TestRuntime;
beforeEach(async () => {
  runtime = await createTestRuntime({
    plugins: [notesPlugin],
    config: { NOTES_LIMIT: '1', OTHER: 'not its own' },
    answer: ({ role, prompt }) => `${role}: ${prompt}`,
  });
});
afterEach(() => runtime.close());

describe('when', () => {
  const FILES = sharedKey<readonly string[]>('sharedFiles');
  const file = { eventId: '$a', filename: 'a.txt', mimetype: 'text/plain' };
  const action = { name: 'draw', description: 'Draws', schema: {}, hasRender: false };
  const earlier = { type: 'human', id: 'm1', content: 'see', attachments: [file] } as const;
  const manifest = { title: 'T', summary: 's', whenToUse: [], category: 'test' };
  const sources = definePlugin({
    ...{ name: 'sources', version: '1.0.0', manifest },
    getSharedState: () => FILES.sharePerTurn(({ state }) => (state.metadata.file ? ['f'] : [])),
  });
  const start = (when: NonNullable<OraclePlugin['when']>) =>
    createTestRuntime({
      plugins: [
        sources,
        definePlugin({
          ...{ name: 'curious', version: '1.0.0', manifest, when },
          softDependsOn: ['sources'],
          getRequestTools: ({ tool }) => [
            tool({
              name: 'look',
              description: 'Looks',
              inputSchema: z.object({}),
              run: (_, { sessionState }) => sessionState.set('seen', 1).then(() => 'seen'),
            }),
          ],
        }),
      ],
    });

  it.each<[string, TurnCondition, TestTurnOptions]>([
    ['clients', { clients: ['chat', 'slack'] }, { client: 'slack' }],
    ['user', { user: ['matrix'] }, { matrix: { accessToken: 'syt' } }],
    ['request', { request: ['tools', 'agActions'] }, { agActions: [action] }],
    ['attachments of the message', { attachments: true }, { attachments: [file] }],
    ['attachments of an earlier one', { attachments: true }, { history: [earlier as never] }],
    ['shared', { shared: [FILES] }, { metadata: { file: true } }],
  ])('calls hooks in turns with any of its %s, and in no others', async (_, when, turn) => {
    const here = await start({ user: ['delegation'], ...when });
    const names = async (options: TestTurnOptions) =>
      (await here.turn(options)).tools.map(({ name }) => name);
    expect(await names({})).toEqual([]);
    expect(
      await names({ agActions: [], history: [{ ...earlier, attachments: [] } as never] }),
    ).toEqual([]);
    expect(await names(turn)).toEqual(['look']);
    await here.close();
  });

  it('calls hooks in later turns of a session whose state it names', async () => {
    const here = await start({ clients: ['slack'], sessionState: ['seen'] });
    const first = await here.turn({ client: 'slack' });
    expect(await first.callTool('look', {})).toBe('seen');
    expect((await here.turn()).tools).toHaveLength(1);
    expect((await here.turn({ sessionId: 'another' })).tools).toEqual([]);
    await here.close();
  });

  it('may be a function, which returns nothing if every turn concerns the plugin', async () => {
    const here = await start(({ availablePlugins }) =>
      availablePlugins.has('sources') ? { clients: ['slack'] } : undefined,
    );
    expect((await here.turn()).tools).toEqual([]);
    await here.close();
    const all = await start(() => undefined);
    expect((await all.turn()).tools).toHaveLength(1);
    await all.close();
  });
});

describe('a turn', () => {
  it('runs tools through the middlewares, with everything a turn has', async () => {
    const turn = await runtime.turn({ user: alice });
    expect(await turn.callTool('add_note', { text: 'mine' })).toEqual({ count: 1 });
    expect(turn.events).toEqual([
      expect.objectContaining({
        event: 'render_component',
        data: expect.objectContaining({ componentName: 'Note', sessionId: 'test-session' }),
      }),
    ]);
    await expect(turn.callTool('add_note', { text: 'more' })).rejects.toThrow(/No more notes/);
    expect(await turn.callTool('sum_up_notes', {})).toBe('utility: changed by the middleware');
  });

  it('checks the input of tools, and knows which there are', async () => {
    const turn = await runtime.turn();
    await expect(turn.callTool('add_note', { text: '' })).rejects.toThrow(
      /Invalid input for add_note/,
    );
    await expect(turn.callTool('burn_note', {})).rejects.toThrow(/there are: add_note/);
  });

  it('callTool finds the tools of the message', async () => {
    const attachments = [{ eventId: '$a', filename: 'a.txt', mimetype: 'text/plain' }];
    const turn = await runtime.turn({ attachments });
    expect(await turn.callTool('count_files', {})).toBe(1);
    expect((await runtime.turn()).tools.map(({ name }) => name)).not.toContain('count_files');
  });

  describe('with a tool that asks the user', () => {
    const shop = definePlugin({
      name: 'shop',
      version: '1.0.0',
      manifest: { title: 'Shop', summary: 'Shop.', whenToUse: ['x'], category: 'test' },
      getTools: () => [
        defineTool({
          name: 'buy',
          description: 'Buys something',
          inputSchema: z.object({ what: z.string() }),
          run: async ({ what }, { interrupt }) => {
            const { ok } = await interrupt({
              kind: 'confirmation',
              schema: z.object({ ok: z.boolean() }),
              data: `Buy ${what}?`,
            });
            return ok ? 'bought' : 'left';
          },
        }),
      ],
    });
    const buy = async (onInterrupt?: (request: InterruptRequest) => unknown) => {
      const shopping = await createTestRuntime({ plugins: [shop] });
      const turn = await shopping.turn({ ...(onInterrupt && { onInterrupt }) });
      return turn.callTool('buy', { what: 'tea' }).finally(() => shopping.close());
    };

    it('onInterrupt answers, and the schema of the question validates it', async () => {
      const questions: unknown[] = [];
      const answer = ({ data }: InterruptRequest) => {
        questions.push(data);
        return { ok: true };
      };
      expect(await buy(answer)).toBe('bought');
      expect(questions).toEqual(['Buy tea?']);
      await expect(buy(() => ({ ok: 'yes' }))).rejects.toThrow(/Invalid answer: ok/);
    });

    it('fails without onInterrupt, with a hint', async () => {
      await expect(buy()).rejects.toThrow(/set the option `onInterrupt` of runtime.turn/);
    });
  });

  it('shows what a model would be asked', async () => {
    await (await runtime.turn({ user: alice })).callTool('add_note', { text: 'x' });
    const { system } = await (await runtime.turn({ user: alice })).callModel({ system: 'Hi.' });
    expect(system).toBe('Hi.\nNotes: 1');
    expect((await (await runtime.turn()).callModel()).system).toBe('\nNotes: 0');
  });

  it('shows sub-agents as they begin', async () => {
    const agent = await (await runtime.turn({ user: alice })).subAgent('archivist');
    expect(agent.prompt).toBe(`You look after the notes of ${alice}.`);
    expect(agent.tools).toHaveLength(2);
    expect(await agent.callTool('add_note', { text: 'x' })).toEqual({ count: 1 });
  });

  it('keeps sessions and users apart', async () => {
    await (await runtime.turn({ user: alice })).callTool('add_note', { text: 'x' });
    const other = await runtime.turn({ user: alice, sessionId: 'other' });
    expect(await other.callTool('add_note', { text: 'x' })).toEqual({ count: 1 });
    expect((await runtime.turn()).getContext('notes').shared.get(NOTE_COUNT)).toBe(0);
  });
});

describe('routes', () => {
  it('are guarded unless they are opened', async () => {
    expect((await runtime.request('GET', '/notes')).status).toBe(401);
    expect((await runtime.request('GET', '/notes/about')).body).toEqual({ about: 'notes' });
    expect((await runtime.request('GET', '/notes', { caller: alice })).body).toEqual({ notes: [] });
  });

  it('have their bodies checked, and their errors answered', async () => {
    const added = await runtime.request('POST', '/notes', { caller: alice, body: { text: 'a' } });
    expect([added.status, added.body]).toEqual([201, { bytes: 12 }]);
    const refused = await runtime.request('POST', '/notes', { caller: alice, body: { txt: 'a' } });
    expect([refused.status, refused.body.code]).toEqual([400, 'validation_failed']);
    const missing = await runtime.request('GET', '/notes/by-number/7', { caller: alice });
    expect(missing).toMatchObject({ status: 404, body: { message: 'No such note' } });
  });
});

it('asks gates for leave', async () => {
  const [hold] = await runtime.admit({ length: 10 });
  await hold?.settle([]);
  expect(runtime.log).toEqual([{ level: 'info', fields: { used: [] }, message: 'settled' }]);
  await expect(runtime.admit({ length: 1000 })).rejects.toThrow('Too long for me');
});

it('accepts invocations once', async () => {
  const wanted = { issuer: TEST_USER, can: 'mcp/call', with: 'x' };
  const token = testInvocation(wanted);
  const accepting = definePlugin({
    ...notesPlugin,
    name: 'accepting',
    tables: [],
    getTools: ({ ucan }) => [
      defineTool({
        name: 'accept',
        description: 'Accepts an invocation once',
        inputSchema: z.object({}),
        run: () => ucan.acceptOnce(token, wanted),
      }),
    ],
    getSharedState: () => ({}),
    getSubAgents: () => [],
    getMiddlewares: () => [],
    getNestModules: () => [],
  });
  const other = await createTestRuntime({ plugins: [accepting] });
  const turn = await other.turn();
  expect(await turn.callTool('accept', {})).toEqual({ ok: true });
  expect(await turn.callTool('accept', {})).toEqual({ error: 'the invocation was used before' });
  await other.close();
});

describe('has no network, no model and no page unless it is given one', () => {
  it.each([
    ['fetch', /no network/],
    ['llm', /no model/],
    ['page', /No page/],
  ])('%s', async (means, text) => {
    const reaching = definePlugin({
      name: 'reaching',
      version: '1.0.0',
      manifest: { title: 'r', summary: 'r', whenToUse: ['r'], category: 'test' },
      getTools: ({ fetch }) => [
        defineTool({
          name: 'reach',
          description: 'Reaches out to the world',
          inputSchema: z.object({}),
          run: async (_, { llm, client, signal, toolCallId }) => {
            if (means === 'fetch') return fetch('https://example.org');
            if (means === 'llm') return llm.get('main').generate({ prompt: 'Hello' });
            const call = { toolCallId, toolName: 'x', args: {}, signal };
            return client.call({ event: 'browser_tool_call', ...call });
          },
        }),
      ],
    });
    const other = await createTestRuntime({ plugins: [reaching] });
    await expect((await other.turn()).callTool('reach', {})).rejects.toThrow(text);
    await other.close();
  });
});

it('says what is wrong with a plugin', async () => {
  const make = (parts: object) => createTestRuntime({ plugins: [{ ...notesPlugin, ...parts }] });
  await expect(make({ name: 'ixo' })).rejects.toThrow(/reserved/);
  await expect(make({ getTool: () => [] })).rejects.toThrow(
    /notes: unknown member getTool: a plugin/,
  );
  await expect(make({ dependsOn: ['ghost'] })).rejects.toThrow(
    /depends on ghost: add it to `plugins`, or of contractTests to `dependencies`/,
  );
  await expect(make({ getTools: () => [{}] })).rejects.toThrow(/getTools of notes returned/);
  await expect(make({ name: 'other' })).rejects.toThrow(/notes_pages is not the plugin other's/);
});

it('createTestRuntime refuses a route whose schema the API document could not describe', async () => {
  const body = mini.object({ text: mini.string() }) as unknown as z.ZodType;
  const route = defineRoute({
    method: 'POST',
    path: '/texts',
    summary: 'Add a text',
    body,
    handler: () => ({}),
  });
  const plugin = definePlugin({ ...notesPlugin, tables: [], routes: [route] });
  await expect(createTestRuntime({ plugins: [plugin] })).rejects.toThrow(
    'route 1: its body is not a schema of zod 4',
  );
});

it('createTestRuntime names the plugin whose variables or manifest are invalid', async () => {
  const configSchema = z.object({ NOTES_KEY: z.string().describe('The key') });
  const { tables: _, ...plugin } = notesPlugin;
  const keyless = { ...plugin, configSchema } as unknown as OraclePlugin;
  await expect(createTestRuntime({ plugins: [keyless] })).rejects.toThrow(
    /^Plugin notes: NOTES_KEY: .*\. Set the option `config`$/,
  );
  const manifest = { ...notesPlugin.manifest, title: '' };
  await expect(createTestRuntime({ plugins: [{ ...notesPlugin, manifest }] })).rejects.toThrow(
    /^Plugin notes: its manifest is invalid: title: /,
  );
});
