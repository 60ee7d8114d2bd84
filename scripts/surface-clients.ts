// Runs published clients of other protocols, and the examples of their pages in docs/surfaces, against a real host.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { buildIfChanged, MAIN } from './build.ts';
import {
  createUser,
  getVenv,
  installPython,
  type PythonPackage,
  SKIPPED,
  startService,
} from './third-party.ts';

/** Clients of one protocol: `third-party/<folder>` has programs that use them, and a lock file. */
interface Clients {
  readonly folder: string;
  readonly page: string;
  readonly python?: PythonPackage;
  /** Libraries for Python that use the protocol, each with a program `check-<name>.py`. */
  readonly libraries?: readonly PythonPackage[];
}

const CLIENTS: readonly Clients[] = [
  {
    folder: 'openai',
    page: 'docs/surfaces/openai.md',
    python: { name: 'openai', version: '3.49.0' },
    libraries: [
      { name: 'pydantic-ai-slim', version: '2.66.0', extras: ['openai'] },
      { name: 'instructor', version: '1.17.0' },
      { name: 'langchain-openai', version: '1.7.3' },
    ],
  },
  { folder: 'ai-sdk', page: 'docs/surfaces/ai-sdk.md' },
  { folder: 'mcp', page: 'docs/surfaces/mcp.md' },
  { folder: 'ag-ui', page: 'docs/surfaces/ag-ui.md' },
];

async function main(): Promise<number> {
  const named = process.argv.slice(2);
  const wanted = CLIENTS.filter(({ folder }) => named.length === 0 || named.includes(folder));
  for (const clients of wanted) {
    const reason = install(clients);
    if (!reason) continue;
    console.log(`clients of ${clients.folder} skipped: ${reason}`);
    return SKIPPED;
  }
  const failure = await buildIfChanged();
  if (failure) return failure;
  const started: (() => unknown)[] = [];
  try {
    const env = await startHosts(started);
    for (const [command, ...args] of wanted.flatMap(writePrograms))
      await run(command ?? '', args, env);
    return 0;
  } catch (error) {
    console.log(error);
    return 1;
  } finally {
    for (const stop of started.reverse()) await stop();
  }
}

/** Installs what the clients need; returns the reason if that fails. */
function install(clients: Clients): string | undefined {
  const failed = installNode(clients) ?? (clients.python && installPython(clients.python));
  for (const library of failed ? [] : (clients.libraries ?? [])) {
    const reason = installPython(library);
    if (reason) return reason;
  }
  return failed;
}

/** Starts a host, and one whose MCP server has what the conformance suite asks for; returns how programs reach them. */
async function startHosts(started: (() => unknown)[]): Promise<Record<string, string>> {
  const model = createServer(answerAsModel).listen(0, '127.0.0.1');
  started.push(() => {
    model.closeAllConnections();
    model.close();
  });
  await once(model, 'listening');
  const start = async (program: string) => {
    const folder = mkdtempSync(join(tmpdir(), 'sibyl-surfaces-'));
    started.push(() => rmSync(folder, { recursive: true, force: true }));
    const { url, stop } = await startService([program], {
      PORT: '0',
      DATA_DIR: folder,
      MODEL: 'openai-compatible/echo',
      MODEL_BASE_URL: `http://127.0.0.1:${(model.address() as AddressInfo).port}/v1`,
      APPROVALS: 'set_user_preferences',
    });
    started.push(stop);
    return { url, folder };
  };
  const host = await start(MAIN);
  const conformance = await start('scripts/conformance/mcp-host.ts');
  const key = createKey(host.url, host.folder);
  const { headers } = await createUser(conformance.url);
  return {
    ORACLE_URL: host.url,
    ORACLE_KEY: key,
    OPENAI_BASE_URL: `${host.url}/v1`,
    OPENAI_API_KEY: key,
    CONFORMANCE_URL: conformance.url,
    CONFORMANCE_AUTHORIZATION: headers.authorization,
  };
}

function getFolder({ folder }: Clients): string {
  return `node_modules/.cache/sibyl/clients-${folder}`;
}

/** Installs the pinned clients for Node outside of the workspaces if they changed; returns the reason if that fails. */
function installNode(clients: Clients): string | undefined {
  const cwd = getFolder(clients);
  cpSync(`third-party/${clients.folder}`, cwd, { recursive: true });
  const lock = readFileSync(join(cwd, 'package-lock.json'), 'utf8');
  const installed = join(cwd, 'node_modules/.installed-lock');
  if (existsSync(installed) && readFileSync(installed, 'utf8') === lock) return undefined;
  const { status, stderr } = spawnSync('npm', ['ci', '--ignore-scripts'], {
    cwd,
    encoding: 'utf8',
  });
  const error = stderr.split('\n').find((line) => /^npm error (?!code )./.test(line));
  if (status !== 0) return `npm ci failed: ${error ?? stderr.trim()}`;
  writeFileSync(installed, lock);
  return undefined;
}

function createKey(url: string, folder: string): string {
  const args = ['packages/cli/bin/sibyl.js', 'keys', 'create', 'Clients', url, '--json'];
  const env = { ...process.env, XDG_CONFIG_HOME: folder };
  const { stdout, stderr } = spawnSync(process.execPath, args, { env, encoding: 'utf8' });
  const { key } = JSON.parse(stdout || '{}');
  if (typeof key === 'string') return key;
  throw new Error(`No key was created: ${stdout}${stderr}`);
}

/** The checks, and the examples of the page. */
function writePrograms(clients: Clients): readonly (readonly string[])[] {
  const page = readFileSync(clients.page, 'utf8');
  const folder = getFolder(clients);
  const python = clients.python ? join(getVenv(clients.python), 'bin/python') : '';
  const examples = [...page.matchAll(/```(js|python)\n(.*?)```/gs)].map(
    ([, language, code = ''], i) => {
      const file = join(folder, `example-${i}.${language === 'js' ? 'mjs' : 'py'}`);
      writeFileSync(file, code);
      return [language === 'js' ? process.execPath : python, file];
    },
  );
  if (examples.length === 0) throw new Error(`${clients.page} has no example`);
  return [
    [process.execPath, join(folder, 'check.mjs')],
    ...(clients.python ? [[python, join(folder, 'check.py')]] : []),
    ...(clients.libraries ?? []).map((library) => [
      join(getVenv(library), 'bin/python'),
      join(folder, `check-${library.name}.py`),
    ]),
    ...examples,
  ];
}

async function run(command: string, args: readonly string[], env: object): Promise<void> {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: 'inherit' });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`${args.join(' ')} ended with code ${code}`);
}

interface ChatRequest {
  readonly messages: readonly {
    readonly role: string;
    readonly content: string | readonly { readonly text?: string }[];
  }[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
  readonly tool_choice?: 'required' | { readonly function: { readonly name: string } };
}

const CITY = '{"city":"Bern"}';

/**
 * A model that repeats the message or the result of a tool, reasons about `Think` and never answers `Wait`. It calls `get_weather` if it can, the tool
 * that it has to call, and changes preferences if it should.
 */
async function answerAsModel(request: IncomingMessage, response: ServerResponse): Promise<void> {
  // The host asks for the model's limits first, which this one does not publish.
  if (request.method !== 'POST') return void response.writeHead(404).end();
  const asked = (await json(request)) as ChatRequest;
  const last = asked.messages.at(-1);
  const isResult = last?.role === 'tool';
  const content = last?.content ?? '';
  const text = typeof content === 'string' ? content : (content[0]?.text ?? '');
  const said = text.split('\n\n[Sent:')[0] ?? '';
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  if (said === 'Wait') return;
  const call = (isResult ? undefined : findCall(asked, said)) ?? findForcedCall(asked);
  const answer = isResult ? `The tool said: ${parse(said)}` : `You said: ${said}`;
  for (const delta of listDeltas(said, answer, call))
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta }] })}\n\n`);
  const finish_reason = call ? 'tool_calls' : 'stop';
  const usage = { prompt_tokens: 7, completion_tokens: 3 };
  const end = { choices: [{ index: 0, delta: {}, finish_reason }], usage };
  response.end(`data: ${JSON.stringify(end)}\n\ndata: [DONE]\n\n`);
}

function listDeltas(said: string, content: string, call: object | undefined): object[] {
  if (call) return [{ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: call }] }];
  return said === 'Think' ? [{ reasoning_content: 'Hm.' }, { content }] : [{ content }];
}

function findCall({ tools = [] }: ChatRequest, said: string) {
  const calls = [
    { name: 'get_weather', arguments: CITY },
    ...(said.startsWith('Prefer')
      ? [{ name: 'set_user_preferences', arguments: '{"tone":"dry"}' }]
      : []),
  ];
  return calls.find(({ name }) => tools.some((tool) => tool.function.name === name));
}

const FILE_TOOLS = ['search_files', 'read_file'];

/** Tools of the client are the last ones, apart from those for files, once there are any. */
function findForcedCall({ tools = [], tool_choice }: ChatRequest) {
  const others = tools.filter(({ function: { name } }) => !FILE_TOOLS.includes(name));
  const forced = tool_choice === 'required' ? others.at(-1) : tool_choice;
  return forced && { name: forced.function.name, arguments: CITY };
}

/** Results are JSON; a text is repeated without its quotes. */
function parse(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : text;
  } catch {
    return text;
  }
}

process.exitCode = await main();
