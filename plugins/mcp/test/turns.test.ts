import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { joinSession } from '../../../packages/host/test/support/session-socket.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { INVOCATION_META } from '../src/connection.js';
import { buildToolName } from '../src/server-tools.js';
import { PIXEL } from './support/demo-server.js';
import { type HttpMcpServer, startHttpServer } from './support/http-server.js';

const ADD = buildToolName('open', 'add.numbers');
const SAFE_ADD = buildToolName('safe', 'add.numbers');

let server: HttpMcpServer;
let model: ControlledModel;
let host: TestHost;
let alice: TestUser;

beforeAll(async () => {
  server = await startHttpServer();
  model = await startControlledModel();
  const servers = {
    open: { url: server.url },
    safe: { url: server.url, protected: ['add.numbers'] },
    asked: { url: server.url },
    dead: { url: 'http://127.0.0.1:1/mcp', timeoutMs: 500 },
  };
  host = await startHost({
    env: {
      ...model.env,
      MCP_SERVERS: JSON.stringify(servers),
      OUTGOING_ALLOW: '127.0.0.1',
      APPROVALS: 'asked__*',
    },
  });
  alice = new TestUser(host);
  // A turn waits only briefly for a server that is not connected.
  const isReady = async () =>
    (await alice.request('GET', '/mcp/servers')).body.servers[0].state === 'ready';
  await vi.waitUntil(isReady, { timeout: 60_000 });
});

afterAll(async () => {
  await host?.close();
  model?.close();
  await server?.close();
});

/** Has the model call a tool; what it was offered, and how the call ended. */
async function use(name: string, more: object = {}) {
  const reply = await stream(alice, await openSession(alice), { message: 'Go', ...more });
  const asked = await model.next();
  asked.call({ name, input: { a: 20, b: 22 } });
  const after = await model.next();
  after.say('ok');
  after.finish();
  const frames = await reply.toEnd();
  const { data } = frames.findLast(({ event }) => event === 'tool_call') ?? { data: {} };
  return {
    asked: asked.body,
    notes: asked.notes,
    status: data.status,
    output: String(data.output),
  };
}

const permit = (user: TestUser, resource: string): string =>
  user.delegate({ capabilities: [{ can: 'mcp/call', with: resource }], ttlSeconds: 300 });

const resource = (path = 'safe/add.numbers') => `ixo:oracle:${host.did}:mcp/${path}`;

describe('tools of MCP servers', () => {
  it('are offered with their schema, and called', async () => {
    const { asked, status, output } = await use(ADD);
    const offered = asked.tools.map((tool: { function: { name: string } }) => tool.function);
    expect(offered).toContainEqual(
      expect.objectContaining({
        name: ADD,
        description: 'Adds two numbers',
        parameters: expect.objectContaining({ required: ['a', 'b'] }),
      }),
    );
    expect({ status, output }).toEqual({ status: 'done', output: '"42"' });
  });

  it('that APPROVALS names are called only once the user has approved', async () => {
    const before = server.calls.length;
    const reply = await stream(alice, await openSession(alice), { message: 'Go' });
    const name = buildToolName('asked', 'add.numbers');
    (await model.next()).call({ name, input: { a: 1, b: 2 } });
    const request = await reply.untilEvent('approval_request');
    expect(request.data).toMatchObject({
      plugin: 'mcp',
      args: { a: 1, b: 2 },
      requiredBy: 'operator',
    });
    await reply.toEnd();
    const path = `/approvals/${request.data.approvalId}`;
    expect((await alice.request('POST', path, { body: { decision: 'approve' } })).status).toBe(403);
    const denied = await alice.request('POST', path, { body: { decision: 'deny' } });
    expect(denied.status).toBe(200);
    const after = await model.next();
    expect(after.results[0]).toContain('denied');
    after.answer('Fine.');
    expect(server.calls).toHaveLength(before);
  });

  it('of an unreachable server are missing, and the agent is informed', async () => {
    const { notes } = await use(ADD);
    expect(notes.join()).toContain('MCP server dead');
  });

  it.each([
    ['the full name', () => ({ [SAFE_ADD]: permit(alice, resource()) })],
    ['the bare name', () => ({ 'add.numbers': permit(alice, resource()) })],
  ])('that are protected take an invocation under %s, once, and pass it on', async (_, tokens) => {
    const mcpInvocations = tokens();
    const before = server.calls.length;
    expect(await use(SAFE_ADD, { mcpInvocations })).toMatchObject({ status: 'done' });
    expect(server.calls.slice(before)).toEqual([
      expect.objectContaining({
        _meta: expect.objectContaining({ [INVOCATION_META]: Object.values(mcpInvocations)[0] }),
      }),
    ]);
    const again = await use(SAFE_ADD, { mcpInvocations });
    expect(again).toMatchObject({
      status: 'error',
      output: expect.stringContaining('used before'),
    });
    expect(server.calls).toHaveLength(before + 1);
  });

  it.each([
    ['none', () => ({})],
    ['that of another user', () => ({ [SAFE_ADD]: permit(new TestUser(host), resource()) })],
    ['one for another tool', () => ({ [SAFE_ADD]: permit(alice, resource('safe/fail')) })],
    ['one for another server', () => ({ [SAFE_ADD]: permit(alice, resource('open/add.numbers')) })],
    ['an auth token', () => ({ [SAFE_ADD]: alice.mint() })],
  ])('that are protected are not called with %s', async (_, tokens) => {
    const before = server.calls.length;
    const { status } = await use(SAFE_ADD, { mcpInvocations: tokens() });
    expect(status).toBe('error');
    expect(server.calls).toHaveLength(before);
  });
});

it('images of MCP servers reach a model that sees', async () => {
  const reply = await stream(alice, await openSession(alice), { message: 'Go' });
  (await model.next()).call({ name: buildToolName('open', 'picture'), input: {} });
  const after = await model.next();
  after.answer('ok');
  await reply.toEnd();
  expect(after.results[0]).toContain('A pixel');
  expect(JSON.stringify(after.body.messages)).toContain(`data:image/png;base64,${PIXEL}`);
});

describe('questions of MCP servers', () => {
  const ASK = buildToolName('open', 'ask');
  const agActions = [
    {
      name: 'mcp_elicitation',
      description: 'Asks the user',
      schema: { type: 'object', properties: {} },
    },
  ];

  async function ask(more: object, answer?: object) {
    const sessionId = await openSession(alice);
    const page = answer && (await joinSession(alice, sessionId));
    const reply = await stream(alice, sessionId, { message: 'Go', ...more });
    (await model.next()).call({ name: ASK, input: {} });
    const question = await page?.until('action_call');
    const { toolCallId } = question ?? {};
    page?.socket.emit('action_call_result', { sessionId, toolCallId, result: answer });
    const after = await model.next();
    after.answer('ok');
    const frames = await reply.toEnd();
    const warnings = frames.filter(({ event }) => event === 'warning').map(({ data }) => data.code);
    return { question, result: JSON.parse(JSON.parse(after.results[0] ?? '')), warnings };
  }

  it('are answered by a page that declares mcp_elicitation', async () => {
    const content = { color: 'green' };
    const { question, result } = await ask({ agActions }, { action: 'accept', content });
    expect(question).toMatchObject({
      toolName: 'mcp_elicitation',
      args: { server: 'open', message: 'Which color?', requestedSchema: { type: 'object' } },
    });
    expect(result).toEqual({ action: 'accept', content });
  });

  it('are declined if no page can answer, and the user is warned', async () => {
    const { result, warnings } = await ask({});
    expect(result).toEqual({ action: 'decline' });
    expect(warnings).toEqual(['mcp_question_declined']);
  });

  it('are declined if the answer is invalid', async () => {
    const { result } = await ask({ agActions }, { action: 'perhaps' });
    expect(result).toEqual({ action: 'decline' });
  });
});
