// Checks the metrics of a host and of a gateway with promtool of Prometheus, after traffic that gives every metric samples.
// Exit codes: 0 passed, 1 failed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { findFreePort } from '../packages/host/test/support/free-port.ts';
import { buildIfChanged, MAIN } from './build.ts';
import { findProgram } from './debian-programs.ts';
import { createUser, startService } from './third-party.ts';

const GATEWAY = 'packages/gateway/dist/main.js';
/** The defaults of prom-client, some of which have no sample yet. */
const FOREIGN = /^(nodejs|process)_/;
/** What happens only if another host dies, which takes PostgreSQL. */
const WITHOUT_SAMPLES = ['sibyl_takeovers_total'];

/** Tool calls of the model, by what it is asked for. */
const CALLS: Readonly<Record<string, { readonly name: string; readonly arguments: string }>> = {
  use: { name: 'set_user_preferences', arguments: '{"length":"concise"}' },
  remember: { name: 'remember', arguments: '{"fact":"Likes tea"}' },
};

process.exitCode = await main();

async function main(): Promise<number> {
  const failure = await buildIfChanged();
  if (failure) return failure;
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-promtool-'));
  const started: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];
  try {
    const results = [
      check('host', await readHost(folder, started)),
      check('gateway', await readGateway(started)),
    ];
    return results.every(Boolean) ? 0 : 1;
  } finally {
    for (const stop of started.reverse()) await stop();
  }
}

function check(name: string, input: string): boolean {
  const { status, stdout, stderr } = spawnSync(findProgram('promtool'), ['check', 'metrics'], {
    input,
    encoding: 'utf8',
  });
  const lines = `${stdout}${stderr}`.split('\n').filter(Boolean);
  const empty = listEmpty(input).filter(
    (metric) => !FOREIGN.test(metric) && !WITHOUT_SAMPLES.includes(metric),
  );
  for (const line of lines) console.log(`${name}: ${line}`);
  if (empty.length > 0) console.log(`${name}: no samples of ${empty.join(', ')}`);
  const isValid = status === 0 && lines.length === 0 && empty.length === 0;
  const count = input.match(/^# TYPE /gm)?.length ?? 0;
  if (isValid) console.log(`promtool: the ${count} metrics of the ${name} are valid`);
  return isValid && count > 10;
}

/** Metrics without a value. */
function listEmpty(metrics: string): string[] {
  return [...metrics.matchAll(/^# TYPE (\S+) /gm)]
    .map(([, name = '']) => name)
    .filter((name) => !new RegExp(`^${name}(_count)?(\\{.*\\})? `, 'm').test(metrics));
}

async function readHost(folder: string, started: (() => unknown)[]): Promise<string> {
  const model = await startModel(started);
  const port = await findFreePort();
  const host = await startService([MAIN], {
    PORT: '0',
    DATA_DIR: join(folder, 'data'),
    METRICS_PORT: String(port),
    MODEL: 'openai-compatible/test',
    MODEL_BASE_URL: model,
    MODEL_SETTINGS: JSON.stringify({ '*': { prices: { input: 1, output: 2 } } }),
    APPROVALS: 'remember',
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: '60',
  });
  started.push(() => host.stop());
  const user = await createUser(host.url);
  await user.ask('please use a tool');
  await user.ask('please fail').catch(() => undefined);
  await decide(host.url);
  const invalid = { authorization: 'Bearer x', 'x-auth-type': 'ucan' };
  for (let i = 0; i < 80; i++) await fetch(`${host.url}/sessions`, { headers: invalid });
  await connectSocket(host.url);
  return (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
}

/** Lets a tool call wait for its user, who denies it. */
async function decide(url: string): Promise<void> {
  const [{ createOracleClient, createSigner }, { generateSigner }] = await Promise.all([
    import('@sibyl/client'),
    import('@sibyl/ucan'),
  ]);
  const client = createOracleClient({ url, signer: createSigner(generateSigner()) });
  const { sessionId } = await client.sessions.create();
  void client.messages.send(sessionId, { message: 'please remember this' }).catch(() => undefined);
  for (let tries = 0; tries < 300; tries++, await delay(200)) {
    const [approval] = await client.approvals.list();
    if (!approval) continue;
    await client.approvals.deny(approval);
    return;
  }
  throw new Error('No tool call waits for approval');
}

/** A handshake without credentials, which is refused. */
async function connectSocket(url: string): Promise<void> {
  const socket = new WebSocket(`${url.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket`);
  const closed = once(socket, 'close');
  socket.addEventListener('message', ({ data }) => {
    if (String(data).startsWith('0')) socket.send('40');
    else socket.close();
  });
  await closed;
}

interface AskedModel {
  readonly messages: readonly { readonly role: string; readonly content?: unknown }[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
}

/** An OpenAI-compatible model that uses a tool, fails, or answers, as it is asked to. */
async function startModel(started: (() => unknown)[]): Promise<string> {
  const server = createServer(async (request, response) => {
    const body = await text(request);
    const delta = chooseDelta(JSON.parse(body || '{"messages":[]}') as AskedModel);
    if (!delta) return void response.writeHead(500).end('{"error":{"message":"no"}}');
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
    const reason = 'tool_calls' in delta ? 'tool_calls' : 'stop';
    const chunk = { choices: [{ index: 0, delta, finish_reason: reason }], usage };
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  started.push(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}

/** What the model says; undefined if it is to fail. */
function chooseDelta({ messages, tools = [] }: AskedModel): object | undefined {
  const wish = /please (use|fail|remember)/.exec(JSON.stringify(messages.at(-1)))?.[1] ?? '';
  if (wish === 'fail') return undefined;
  const call = CALLS[wish];
  const isOffered = tools.some((each) => each.function.name === call?.name);
  if (!call || !isOffered) return { content: 'Hello' };
  return { tool_calls: [{ index: 0, id: 'call-1', type: 'function', function: call }] };
}

async function readGateway(started: (() => unknown)[]): Promise<string> {
  await import('./demo-chain.ts');
  const gateway = await startService([GATEWAY], {
    GATEWAY_PORT: '0',
    GATEWAY_UPSTREAMS: process.env.GATEWAY_UPSTREAMS ?? '',
  });
  started.push(() => gateway.stop());
  for (let tries = 0; tries < 100; tries++, await delay(100)) {
    const { status } = await fetch(`${gateway.url}/ixo/entity/params`);
    if (status === 200) break;
  }
  assert.equal((await fetch(`${gateway.url}/ixo/entity/params`)).status, 200);
  return (await fetch(`${gateway.url}/metrics`)).text();
}
