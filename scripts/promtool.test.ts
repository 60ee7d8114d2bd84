import { spawnSync } from 'node:child_process';
import { expect, it, onTestFinished } from 'vitest';
import { startTestNode } from '../packages/demo-chain/test/support/test-node.js';
import { startGateway } from '../packages/gateway/test/support/running-gateway.js';
import { findFreePort } from '../packages/host/test/support/free-port.js';
import { startHost } from '../packages/host/test/support/host.js';
import { openSession, stream } from '../packages/host/test/support/stream.js';
import { TestUser } from '../packages/host/test/support/user.js';
import { findProgram } from './debian-programs.ts';

/** What promtool says, and its exit code. */
function check(input: string) {
  const { status, stdout, stderr } = spawnSync(findProgram('promtool'), ['check', 'metrics'], {
    input,
    encoding: 'utf8',
  });
  return { status, output: stdout + stderr };
}

it('GET /metrics of a host passes promtool check metrics', async () => {
  const port = await findFreePort();
  const host = await startHost({ env: { METRICS_PORT: String(port) } });
  onTestFinished(host.close);
  const alice = new TestUser(host);
  await (await stream(alice, await openSession(alice), { message: 'Hello' })).toEnd();
  const metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  expect(metrics).toContain('sibyl_turns_total');
  expect(check(metrics)).toEqual({ status: 0, output: '' });
});

it('GET /metrics of a gateway passes promtool check metrics', async () => {
  const node = await startTestNode();
  onTestFinished(node.close);
  const gateway = await startGateway([node]);
  onTestFinished(gateway.close);
  expect((await gateway.get('/ixo/entity/params')).status).toBe(200);
  expect((await gateway.get('/ixo/unknown')).status).toBe(404);
  const { text: metrics } = await gateway.get('/metrics');
  expect(metrics).toContain('/ixo.entity.v1beta1.Query/Params');
  expect(check(metrics)).toEqual({ status: 0, output: '' });
});
