import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { startControlledModel } from './support/controlled-model.js';
import { findFreePort } from './support/free-port.js';
import { startHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const PRICES = { input: 1_000_000, output: 2_000_000 };

it('GET /metrics counts requests and logins on METRICS_PORT', async () => {
  const port = await findFreePort();
  const host = await startHost({ env: { METRICS_PORT: String(port) } });
  const alice = new TestUser(host);
  await alice.request('GET', '/sessions');
  await (await stream(alice, await openSession(alice), { message: 'count to 30' })).toEnd();
  const asDelegate = { 'x-ucan-delegation': alice.delegate() };
  await fetch(`${host.url}/sessions`, { headers: asDelegate });
  await fetch(`${host.url}/sessions`, { headers: { ...alice.headers, authorization: 'Bearer x' } });
  const read = async () => (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const invocation = alice.delegate({ capabilities: [{ can: 'mcp/call', with: alice.did }] });
  await fetch(`${host.url}/sessions`, { headers: { 'x-ucan-delegation': invocation } });
  await expect.poll(read).toContain('route="/sessions",status="401"} 2');
  const text = await read();
  await host.close();
  expect(text).toContain(
    'sibyl_http_requests_total{method="GET",route="/sessions",status="200"} 2',
  );
  expect(text).toContain('sibyl_auth_total{means="delegation",outcome="proven"} 1');
  expect(text).toContain('sibyl_auth_total{means="invocation",outcome="refused"} 1');
  expect(text).toContain(
    'sibyl_tokens_refused_total{purpose="delegation",reason="wrong_purpose"} 1',
  );
  expect(text).toMatch(/^process_resident_memory_bytes \d+$/m);
  expect(text).toMatch(/^sibyl_bus_lag_seconds 0$/m);
  expect(text).toMatch(/^sibyl_hosts 1$/m);
  expect(text).toMatch(/^sibyl_flushed_runs_total \d+$/m);
  expect(text).toContain('sibyl_errors_total{code="invalid_invocation"} 1');
  const names = new Set(text.match(/^[a-z_]+(?=[{ ])/gm));
  expect(names.size).toBeGreaterThanOrEqual(4);
  for (const name of names) {
    const metric = name.replace(/_(bucket|sum|count)$/, '');
    expect(text).toMatch(new RegExp(`^# HELP (${name}|${metric}) \\S.+$`, 'm'));
    expect(text).toMatch(
      new RegExp(`^# TYPE (${name}|${metric}) (counter|gauge|histogram|summary)$`, 'm'),
    );
  }
  await expect(read()).rejects.toThrow();
});

it('GET /metrics measures turns, model calls, tools and hooks, and names only tools of plugins', async () => {
  const port = await findFreePort();
  const host = await startHost({ env: { METRICS_PORT: String(port) } });
  const read = async () => (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  await (await stream(alice, sessionId, { message: 'Please answer briefly' })).toEnd();
  const text = await read();
  await host.close();
  expect(text).toContain('sibyl_turns_total{status="finished",kind=""} 1');
  expect(text).toMatch(/^sibyl_turn_seconds_count\{status="finished"\} 1$/m);
  expect(text).toMatch(/^sibyl_time_to_first_token_seconds_count\{model="offline"\} 1$/m);
  expect(text).toMatch(
    /^sibyl_model_call_seconds_count\{model="offline",outcome="finished"\} \d+$/m,
  );
  expect(text).toMatch(/^sibyl_model_tokens_total\{model="offline",kind="output"\} \d+$/m);
  expect(text).toMatch(
    /^sibyl_tool_seconds_count\{tool="set_user_preferences",outcome="done"\} 1$/m,
  );
  expect(text).toMatch(/^sibyl_hook_seconds_count\{plugin="[a-z-]+",hook="/m);
  expect(text).toMatch(/^sibyl_flush_seconds_count \d+$/m);
  expect(text).toContain('sibyl_turns{state="running"} 0');
  expect(text).toContain('sibyl_ready{check="store"} 1');
});

it('GET /metrics counts the same tokens and cost as GET /usage, also of answers that were aborted', async () => {
  const port = await findFreePort();
  const model = await startControlledModel();
  const MODEL_SETTINGS = JSON.stringify({ [model.env.MODEL ?? '']: { prices: PRICES } });
  const env = { ...model.env, METRICS_PORT: String(port), MODEL_SETTINGS };
  const host = await startHost({ env });
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  const live = await stream(alice, sessionId, { message: 'abort this' });
  (await model.next()).say('Hel');
  await live.untilEvent('message');
  await alice.request('POST', '/messages/abort', { body: { sessionId } });
  await live.toEnd();
  const { total } = (await alice.request('GET', '/usage')).body;
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  await host.close();
  model.close();
  expect(total.inputTokens).toBeGreaterThan(0);
  const of = (labels: string) => `{model="${model.env.MODEL}"${labels}}`;
  expect(text).toContain(`sibyl_model_tokens_total${of(',kind="input"')} ${total.inputTokens}\n`);
  expect(text).toContain(`sibyl_model_tokens_total${of(',kind="output"')} ${total.outputTokens}\n`);
  expect(text).toContain(`sibyl_model_cost_total${of('')} ${total.cost}\n`);
});

it('GET /metrics has every metric of the Grafana dashboard', async () => {
  const port = await findFreePort();
  const host = await startHost({ env: { METRICS_PORT: String(port) } });
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  await host.close();
  const dashboard = JSON.parse(readFileSync('deploy/grafana-dashboard.json', 'utf8')) as {
    panels: { targets: { expr: string }[] }[];
  };
  const used = dashboard.panels.flatMap(({ targets }) =>
    targets.flatMap(({ expr }) => expr.match(/\b(sibyl|process|nodejs)_[a-z0-9_]+/g) ?? []),
  );
  expect(used.length).toBeGreaterThan(30);
  const defined = new Set([...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name));
  const missing = used
    .map((name) => name.replace(/_(bucket|sum|count)$/, ''))
    .filter((name) => !defined.has(name));
  expect(missing).toEqual([]);
  // And the other way round: everything that is measured is shown.
  const own = [...defined].filter((name) => name?.startsWith('sibyl_'));
  expect(own.filter((name) => !used.some((each) => each.startsWith(name ?? '')))).toEqual([]);
});
