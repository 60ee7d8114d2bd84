// Generates clients from the API document of a real host, compiles them and uses them; joins a session with python-socketio.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { buildIfChanged, MAIN } from './build.ts';
import { getVenv, installNode, installPython, SKIPPED, startService } from './third-party.ts';

const PYTHON_CLIENT = { name: 'openapi-python-client', version: '0.29.1' };
const SOCKETIO = { name: 'python-socketio', version: '5.18.1', extras: ['client'] };
const TYPESCRIPT = {
  name: 'openapi-typescript',
  version: '7.13.0',
  more: ['openapi-fetch@0.17.0', 'typescript@5.9.3', '@types/node@24.19.2'],
};

process.exitCode = await main();

async function main(): Promise<number> {
  const reason = installPython(PYTHON_CLIENT) ?? installPython(SOCKETIO) ?? installNode(TYPESCRIPT);
  if (reason) {
    console.log(`Generated clients skipped: ${reason}`);
    return SKIPPED;
  }
  const failure = await buildIfChanged();
  if (failure) return failure;
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-clients-'));
  const host = await startService([MAIN], { PORT: '0', DATA_DIR: join(folder, 'data') });
  try {
    await useClients(host.url, folder);
    return 0;
  } catch (error) {
    console.log(error);
    return 1;
  } finally {
    await host.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function useClients(url: string, folder: string): Promise<void> {
  const document = join(folder, 'openapi.json');
  writeFileSync(document, await (await fetch(`${url}/docs/openapi.json`)).text());
  usePythonClient(document, folder, [url, await mintToken(url)]);
  useTypeScriptClient(document, [url, await mintToken(url)]);
  const token = await mintToken(url);
  const { sessionId } = await openSession(url, token);
  const python = resolve(getVenv(SOCKETIO), 'bin/python');
  run(python, [resolve('scripts/conformance/socketio-client.py'), url, token, sessionId], folder);
}

function usePythonClient(document: string, folder: string, args: readonly string[]): void {
  const venv = resolve(getVenv(PYTHON_CLIENT));
  const output = join(folder, 'oracle_client');
  const choices = ['--path', document, '--output-path', output, '--meta', 'none'];
  run(join(venv, 'bin/openapi-python-client'), ['generate', ...choices], folder);
  run(join(venv, 'bin/python'), ['-m', 'compileall', '-q', output], folder);
  const program = resolve('scripts/conformance/generated-client.py');
  run(join(venv, 'bin/python'), [program, ...args], folder, { PYTHONPATH: folder });
}

/** In the folder of the packages, where the compiler finds them. */
function useTypeScriptClient(document: string, args: readonly string[]): void {
  const home = resolve(getVenv(TYPESCRIPT));
  const bin = join(home, 'node_modules/.bin');
  copyFileSync('scripts/conformance/generated-client.ts.template', join(home, 'client.ts'));
  writeFileSync(join(home, 'package.json'), '{"type":"module"}');
  const node = process.execPath;
  // Otherwise fields with a default value would be required in requests.
  const choices = ['--output', join(home, 'api.d.ts'), '--default-non-nullable=false'];
  run(node, [join(bin, 'openapi-typescript'), document, ...choices], home);
  const options = ['--strict', '--target', 'es2024', '--module', 'nodenext'];
  run(node, [join(bin, 'tsc'), ...options, 'client.ts'], home);
  run(node, ['client.js', ...args], home);
}

async function mintToken(url: string): Promise<string> {
  const { generateSigner, mintAuthInvocation } = await import('@sibyl/ucan');
  const card = await (await fetch(`${url}/.well-known/oracle.json`)).json();
  const { did: audience } = card as { did: string };
  const { ok } = mintAuthInvocation({ signer: generateSigner(), audience, ttlSeconds: 600 });
  if (!ok) throw new Error('no token');
  return ok.token;
}

async function openSession(url: string, token: string): Promise<{ sessionId: string }> {
  const headers = { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
  const response = await fetch(`${url}/sessions`, { method: 'POST', headers });
  return (await response.json()) as { sessionId: string };
}

function run(
  command: string,
  args: readonly string[],
  cwd: string,
  env: Readonly<Record<string, string>> = {},
): void {
  const { PATH = '', HOME = '' } = process.env;
  const settings = {
    cwd,
    env: { PATH, HOME, ...env },
    encoding: 'utf8',
    timeout: 300_000,
  } as const;
  const { status, stdout, stderr, error } = spawnSync(command, args, settings);
  console.log(stdout.trim());
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed:\n${error ?? stderr}`);
}
