import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { startHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

it('GET /metrics counts requests and logins on METRICS_PORT', async () => {
  const port = await freePort();
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
  const names = new Set(text.match(/^[a-z_]+(?=[{ ])/gm));
  expect(names.size).toBeGreaterThanOrEqual(4);
  for (const name of names) {
    expect(text).toMatch(new RegExp(`^# HELP ${name} \\S.+$`, 'm'));
    expect(text).toMatch(new RegExp(`^# TYPE ${name} (counter|gauge|histogram)$`, 'm'));
  }
  await expect(read()).rejects.toThrow();
});
