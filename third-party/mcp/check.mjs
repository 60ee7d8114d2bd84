// Runs the inspector and the conformance suite of MCP as their documentation shows; prints one line per check.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request as sendRequest } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';

const { ORACLE_URL, ORACLE_KEY, CONFORMANCE_URL, CONFORMANCE_AUTHORIZATION } = process.env;
const packages = join(import.meta.dirname, 'node_modules/@modelcontextprotocol');

const runNode = async (program, ...args) => {
  // The inspector writes into the home folder.
  const env = { ...process.env, HOME: import.meta.dirname };
  const file = join(packages, program);
  return (await promisify(execFile)(process.execPath, [file, ...args], { env })).stdout;
};

const INSPECTOR = 'inspector/clients/launcher/build/index.js';

async function inspect(...args) {
  const target = [`${ORACLE_URL}/mcp`, '--header', `Authorization: Bearer ${ORACLE_KEY}`];
  return JSON.parse(await runNode(INSPECTOR, '--cli', ...target, ...args));
}

const { tools } = await inspect('--method', 'tools/list');
assert.deepEqual(tools.map(({ name }) => name), ['ask', 'read_answer']);
console.log('inspector: tools/list');

const call = ['--method', 'tools/call', '--tool-name', 'ask', '--tool-arg', 'message=Hello'];
const { structuredContent } = await inspect(...call);
assert.equal(structuredContent.answer, 'You said: Hello');
console.log('inspector: tools/call');

/** The suite sends no headers of its own, so this adds who is calling; everything else passes unchanged. */
const proxy = createServer((request, response) => {
  const identity = { authorization: CONFORMANCE_AUTHORIZATION, 'x-auth-type': 'ucan' };
  const headers = { ...request.headers, ...identity };
  const { method } = request;
  const forwarded = sendRequest(`${CONFORMANCE_URL}/mcp`, { method, headers }, (reply) => {
    response.writeHead(reply.statusCode, reply.headers);
    reply.on('error', () => response.destroy()).pipe(response);
  });
  forwarded.on('error', () => response.destroy());
  response.on('close', () => forwarded.destroy());
  request.pipe(forwarded);
}).listen(0, '127.0.0.1');
await once(proxy, 'listening');

const url = `http://127.0.0.1:${proxy.address().port}/mcp`;
try {
  const suite = ['server', '--url', url, '--suite', 'all'];
  const output = await runNode('conformance/dist/index.js', ...suite);
  console.log(output);
  // The suite exits with 0 after a warning.
  assert.doesNotMatch(output, /^✗/m);
} catch (error) {
  console.log(error.stdout ?? error, error.stderr);
  process.exitCode = 1;
}
proxy.closeAllConnections();
proxy.close();
