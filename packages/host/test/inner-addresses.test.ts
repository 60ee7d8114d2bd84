import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHttpServer } from '../../../plugins/mcp/test/support/http-server.js';
import { useTool } from './support/ask.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { TestUser } from './support/user.js';

/** Where the operator's services are; nothing listens there. */
const INNER = '127.0.0.1:1';

let model: ControlledModel;
let host: TestHost;

beforeAll(async () => {
  model = await startControlledModel();
  const server = await startHttpServer();
  host = await startHost({
    manifestOverrides: { chain: { visibility: 'always' } },
    env: {
      ...model.env,
      GATEWAY_URL: `http://${INNER}`,
      MATRIX_BASE_URL: `http://${INNER}`,
      MATRIX_ACCESS_TOKEN: 'token',
      MCP_SERVERS: JSON.stringify({ demo: { url: server.url } }),
      OUTGOING_ALLOW: '127.0.0.1',
    },
  });
  // Once, so that the host knows its tools.
  await useTool({ user: new TestUser(host), model }, FAIL, {});
  await server.close();
});

afterAll(async () => {
  await host?.close();
  model?.close();
});

const FAIL = 'demo__fail';
const ENTITY = 'did:ixo:entity:abcdef0123456789abcdef0123456789';

describe('a tool whose service is unreachable', () => {
  it.each([
    ['get_entity', { id: ENTITY }, 'The gateway cannot be reached'],
    [FAIL, {}, 'demo cannot be reached'],
  ])(
    'reports an error without the address, which is only logged: %s',
    async (name, input, text) => {
      const before = host.log.length;
      const { status, data } = await useTool({ user: new TestUser(host), model }, name, input);
      const shown = JSON.stringify(data);
      expect([status, shown]).toEqual(['error', expect.stringContaining(text)]);
      expect(shown).not.toMatch(/127\.0\.0\.1|ECONN|localhost/);
      expect(JSON.stringify(host.log.slice(before))).toMatch(/127\.0\.0\.1/);
    },
  );
});
