import { defineSubAgent, defineTool } from '@sibyl/plugin-kit';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { z } from 'zod';
import {
  type HttpMcpServer,
  startHttpServer,
} from '../../../plugins/mcp/test/support/http-server.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { type OtlpReceiver, startOtlpReceiver } from './support/otlp-receiver.js';
import { testPlugin } from './support/plugin.js';
import { join, openSession, stream } from './support/stream.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const TIMEOUT = { timeout: 60_000 };
const SECRET = 'the goats of my neighbor';

const measure = defineTool({
  name: 'measure',
  description: 'Measures the rain',
  inputSchema: z.object({ where: z.string() }),
  run: () => ({ mm: 12 }),
});
const weather = defineSubAgent({
  name: 'weather',
  description: 'Knows the weather',
  prompt: 'You know the weather.',
  tools: [measure],
});
const sky = testPlugin('sky', { getTools: () => [measure], getSubAgents: () => [weather] });

let receiver: OtlpReceiver;
let database: TestDatabase;
let model: ControlledModel;
let mcp: HttpMcpServer;
const mcpTraces: unknown[] = [];
let hosts: TestHost[] = [];
beforeAll(async () => {
  receiver = await startOtlpReceiver();
  database = await createTestDatabase('postgres');
  model = await startControlledModel();
  mcp = await startHttpServer({
    intercept: ({ headers }) => {
      mcpTraces.push(headers.traceparent);
      return false;
    },
  });
  const env = {
    ...database.env,
    ...model.env,
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    MCP_SERVERS: JSON.stringify({ demo: { url: mcp.url } }),
    OUTGOING_ALLOW: '127.0.0.1',
  };
  const start = () => startHost({ env, plugins: [sky] });
  hosts = [await start(), await start()];
}, 120_000);
afterAll(async () => {
  await Promise.all(hosts.map((host) => host.close()));
  model?.close();
  await mcp?.close();
  await database?.drop();
  receiver?.close();
});

it(
  'OTEL_EXPORTER_OTLP_ENDPOINT receives a turn with a tool, a sub-agent and an MCP call, read on another host, as one trace',
  TIMEOUT,
  async () => {
    const [first, second] = hosts as [TestHost, TestHost];
    const alice = new TestUser(first);
    await vi.waitUntil(
      async () => (await alice.request('GET', '/mcp/servers')).body.servers[0].state === 'ready',
      TIMEOUT,
    );
    const traceId = '0af7651916cd43dd8448eb211c80319c';
    const live = await stream(
      alice,
      await openSession(alice),
      { message: SECRET },
      { traceparent: `00-${traceId}-b7ad6b7169203331-01` },
    );
    const runId = String((await live.untilEvent('run')).data.runId);
    const reading = join(alice.at(second), runId, 0);
    const asked = await model.next();
    const mcpTool = asked.tools.find((name) => /^demo__.*add/.test(name)) ?? '';
    asked.call(
      { name: 'call_weather_agent', input: { task: 'Will it rain?' } },
      { name: mcpTool, input: { a: 20, b: 22 } },
    );
    (await model.next()).call({ name: 'measure', input: { where: 'Kisumu' } });
    (await model.next()).answer('12 mm');
    (await model.next()).answer('Yes');
    await live.toEnd();
    await (await reading).toEnd();
    const ofTrace = () => receiver.spans.filter((span) => span.traceId === traceId);
    const names = () => ofTrace().map(({ name }) => name);
    const wanted = [
      'POST /messages/:sessionId',
      expect.stringMatching(/^invoke_agent /),
      'chat controlled',
      'execute_tool call_weather_agent',
      'execute_tool measure',
      `execute_tool ${mcpTool}`,
      `read_run ${runId}`,
    ];
    await vi.waitFor(() => {
      expect(names()).toEqual(expect.arrayContaining(wanted));
      // Each host sends its own spans.
      expect(new Set(ofTrace().map(({ host }) => host)).size).toBe(2);
    }, TIMEOUT);
    const spans = ofTrace();
    const find = (name: string) => spans.filter((span) => span.name.startsWith(name));
    const [turn] = find('invoke_agent');
    const [agent] = find('execute_tool call_weather_agent');
    const [inner] = find('execute_tool measure');
    const chats = find('chat');
    const reader = find('read_run').find(({ host }) => host !== turn?.host);
    // Two of the turn itself, and perhaps the title.
    const ofTurn = chats.filter(({ parentId }) => parentId === turn?.spanId);
    expect(ofTurn.length).toBeGreaterThanOrEqual(2);
    expect(chats.filter(({ parentId }) => parentId === agent?.spanId)).toHaveLength(2);
    expect(inner?.parentId).toBe(agent?.spanId);
    expect(turn?.attributes).toMatchObject({
      'user.id': alice.did,
      'session.id': expect.any(String),
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.agent.name': turn?.name.slice('invoke_agent '.length),
      'gen_ai.provider.name': 'openai-compatible',
      'gen_ai.request.model': 'controlled',
      'gen_ai.conversation.id': turn?.attributes['session.id'],
    });
    expect(chats[0]?.attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai-compatible',
      'gen_ai.request.model': 'controlled',
      'gen_ai.usage.output_tokens': 3,
    });
    // Read on the other host, in the same trace.
    expect(reader?.name).toBe(`read_run ${runId}`);
    // Models and MCP servers continue the trace.
    expect(asked.headers.traceparent).toContain(traceId);
    expect(chats.map(({ spanId }) => `00-${traceId}-${spanId}-01`)).toContain(
      asked.headers.traceparent,
    );
    expect(mcpTraces.some((traceparent) => String(traceparent).includes(traceId))).toBe(true);
    expect(find('POST')[0]?.attributes).toMatchObject({ 'http.route': '/messages/:sessionId' });
    // The store is not a model.
    const stored = find('store write');
    expect(stored[0]?.attributes).toMatchObject({
      'db.operation.name': 'write',
      'db.system.name': 'postgresql',
    });
    for (const { attributes } of find('store'))
      expect(attributes).not.toHaveProperty('gen_ai.operation.name');
    // Hooks that did nothing are left out, and no span has lost its parent.
    for (const { name, spanId, ms } of find('hook')) {
      const inner = spans.filter(({ parentId }) => parentId === spanId);
      expect([name, inner.length > 0 || ms > 19]).toEqual([name, true]);
    }
    const ids = new Set([...spans.map(({ spanId }) => spanId), 'b7ad6b7169203331']);
    for (const { name, parentId } of spans) expect([name, ids.has(parentId)]).toEqual([name, true]);
    // Texts stay out of traces.
    expect(JSON.stringify(receiver.spans)).not.toContain('goats');
  },
);
