import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { type RunningGateway, startGateway } from './support/running-gateway.js';

const CLAIMS = '/ixo/claims/claims';

describe.each(['grpc', 'rpc+http'] as const)('pages over %s', (over) => {
  describe.each<Record<string, string>>([{}, { GATEWAY_COMPAT: 'node' }])('with %j', (env) => {
    let node: TestNode;
    let gateway: RunningGateway;

    beforeAll(async () => {
      node = await startTestNode({ over });
      gateway = await startGateway([node], env);
    });

    afterAll(async () => {
      await gateway.close();
      await node.close();
    });

    const getPage = async (query: string) => {
      const { json } = await gateway.get(CLAIMS + query);
      return { claims: json.claims.length, total: json.pagination.total };
    };

    it('have the total that the node counts without a limit', async () => {
      const { claims, total } = await getPage('');
      expect(claims).toBeGreaterThan(5);
      expect(Number(total)).toBeGreaterThanOrEqual(claims);
      expect(await getPage('?pagination.offset=2')).toMatchObject({ total });
      expect(await getPage('?pagination.limit=3')).toEqual({ claims: 3, total: '0' });
      expect(await getPage('?pagination.limit=3&pagination.count_total=true')).toEqual({
        claims: 3,
        total,
      });
    });
  });
});

describe('GATEWAY_PAGE_LIMIT', () => {
  it('changes no reply: a larger page is the same if it fits, and else an error', async () => {
    const node = await startTestNode();
    const [small, usual] = [
      await startGateway([node], { GATEWAY_PAGE_LIMIT: '5' }),
      await startGateway([node]),
    ];
    try {
      const rest = `${CLAIMS}?pagination.offset=10&pagination.limit=1000`;
      const { pagination } = (await usual.get(CLAIMS)).json;
      const last = `${CLAIMS}?pagination.offset=${Number(pagination.total) - 3}&pagination.limit=1000`;
      expect((await small.get(last)).text).toBe((await usual.get(last)).text);
      const refused = await small.get(rest);
      expect(refused).toMatchObject({ status: 400, json: { code: 3 } });
      expect(refused.json.message).toContain('pagination.key');
      expect((await small.get(rest.replace('1000', '5'))).status).toBe(200);
    } finally {
      await Promise.all([small.close(), usual.close()]);
      await node.close();
    }
  });
});
