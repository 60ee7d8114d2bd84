import { afterAll, beforeAll, expect, it } from 'vitest';
import { loadChainSchema } from '../src/chain-schema.js';
import { startTestNode, type TestNode } from './support/test-node.js';

const schema = loadChainSchema();
const PARAMS = '/ixo.token.v1beta1.Query/Params';
let node: TestNode;
let url: string;

beforeAll(async () => {
  node = await startTestNode({ over: 'rpc+http' });
  node.blocks.earliest = 10;
  url = node.url.replace('rpc+', '');
});

afterAll(() => node.close());

async function post(method: string, params: object) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 7, method, params });
  const response = await fetch(url, { method: 'POST', body });
  return response.json();
}

const get = async (path: string) => (await fetch(`${url}${path}`)).json();

it('startRpcServer answers a query by JSON-RPC and by URL alike', async () => {
  const posted = await post('abci_query', { path: PARAMS, data: '', height: '50', prove: false });
  const { value, ...response } = posted.result.response;
  expect(posted).toMatchObject({ jsonrpc: '2.0', id: 7 });
  expect(response).toMatchObject({ code: 0, height: '50' });
  const decoded = schema.decode(
    'ixo.token.v1beta1.QueryParamsResponse',
    Buffer.from(value, 'base64'),
  );
  expect(decoded).toEqual({ params: { ixo1155_contract_code: '25' } });
  const got = await get(`/abci_query?path="${PARAMS}"&data=0x&height=50`);
  expect(got.result).toEqual(posted.result);
});

it('startRpcServer reads a request in hex', async () => {
  const request = schema.encode('ixo.entity.v1beta1.QueryEntityRequest', { id: 'did:ixo:none' });
  const data = Buffer.from(request).toString('hex');
  const path = '/ixo.entity.v1beta1.Query/Entity';
  const { result } = await post('abci_query', { path, data });
  expect(result.response).toMatchObject({
    code: 22,
    codespace: 'sdk',
    log: 'rpc error: code = NotFound desc = entity did:ixo:none not found: key not found',
    value: null,
  });
  expect((await get(`/abci_query?path="${path}"&data=0x${data}`)).result).toEqual(result);
});

it.each([
  [
    '101',
    26,
    'cannot query with height in the future; please provide a valid height: invalid height',
  ],
  [
    '9',
    18,
    'failed to load state at height 9; version does not exist (latest height: 100): invalid request',
  ],
])('startRpcServer rejects height %s with code and log', async (height, code, log) => {
  const { result } = await post('abci_query', { path: PARAMS, data: '', height });
  expect(result.response).toMatchObject({ code, codespace: 'sdk', log });
});

it('startRpcServer rejects unknown paths and methods', async () => {
  const { result } = await post('abci_query', { path: '/no.such.Query/Thing', data: '' });
  const log = 'unknown query path: unknown request';
  expect(result.response).toMatchObject({ code: 6, codespace: 'sdk', log });
  expect(await post('no_such', {})).toMatchObject({ id: 7, error: { code: -32601 } });
});

it('startRpcServer reports the height of the node', async () => {
  const sync_info = { latest_block_height: '100', earliest_block_height: '10', catching_up: false };
  expect(await post('status', {})).toMatchObject({ result: { sync_info } });
  expect(await get('/status')).toMatchObject({ result: { sync_info } });
});
