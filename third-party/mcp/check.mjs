// Runs the inspector and the conformance suite of MCP as their documentation shows; prints one line per check.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
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

/** The suite sends no headers of its own, so this adds who is calling. */
const proxy = createServer(async (request, response) => {
  const { host: _, connection: __, ...headers } = request.headers;
  const hasBody = request.method === 'POST';
  const reply = await fetch(`${CONFORMANCE_URL}/mcp`, {
    method: request.method,
    headers: { ...headers, authorization: CONFORMANCE_AUTHORIZATION, 'x-auth-type': 'ucan' },
    ...(hasBody && { body: Readable.toWeb(request), duplex: 'half' }),
  });
  response.writeHead(reply.status, Object.fromEntries(reply.headers));
  if (reply.body) Readable.fromWeb(reply.body).on('error', () => response.destroy()).pipe(response);
  else response.end();
}).listen(0, '127.0.0.1');
await once(proxy, 'listening');

const url = `http://127.0.0.1:${proxy.address().port}/mcp`;
const baseline = join(import.meta.dirname, 'not-supported.yml');
try {
  const suite = ['server', '--url', url, '--suite', 'all', '--expected-failures', baseline];
  console.log(await runNode('conformance/dist/index.js', ...suite));
} catch (error) {
  console.log(error.stdout, error.stderr);
  process.exitCode = 1;
}
proxy.closeAllConnections();
proxy.close();
