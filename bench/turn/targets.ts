import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent, type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { StubOptions } from '../../packages/host/test/support/model-servers/chat-completions-stub.ts';
import { mintTokens, type ServerProcess, startServer } from '../support/server-process.ts';

const USERS = 32;
const MANY = '100000000';
const SCRIPTS = {
  stub: new URL('../servers/model.ts', import.meta.url),
  floor: new URL('../servers/floor.ts', import.meta.url),
  host: new URL('../servers/host.ts', import.meta.url),
};

/** A model and the servers that call it, each in its own process. */
export interface Servers {
  readonly stub: Target;
  /** The floor that the host is compared with; it calls the model by fetch. */
  readonly floor: Target;
  /** The same on node:http, which the host uses too. */
  readonly leanFloor: Target;
  /** The same, which stores what a durable turn needs: the most that a host on these tables could reach. */
  readonly durableFloor: Target;
  readonly host: Target;
}

/** Starts the servers, passes them to a function and stops them. */
export async function withServers<T>(
  options: StubOptions,
  use: (servers: Servers) => Promise<T>,
): Promise<T> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
  const started: ServerProcess[] = [];
  try {
    return await use(await startServers(options, dataDir, started));
  } finally {
    await Promise.all(started.map((server) => server.stop()));
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function startServers(
  options: StubOptions,
  dataDir: string,
  started: ServerProcess[],
): Promise<Servers> {
  const start = async (name: keyof typeof SCRIPTS, args: string[], env = {}) => {
    const server = await startServer(SCRIPTS[name], { args, env });
    started.push(server);
    return server;
  };
  const tool = options.toolCall ? 'clock' : 'none';
  const stub = await start('stub', [JSON.stringify(options)]);
  const startFloor = (client: string, name: string, ...rest: string[]) =>
    start('floor', [stub.url, join(dataDir, `${name}.db`), client, tool, ...rest]);
  const floor = await startFloor('fetch', 'floor');
  const leanFloor = await startFloor('http', 'lean-floor');
  const host = await start('host', [tool], buildHostEnv(stub, dataDir));
  const durableFloor = await startFloor('http', 'durable-floor', join(dataDir, 'sibyl.db'));
  return {
    stub: stubTarget(stub),
    floor: floorTarget(floor, 'floor on fetch'),
    leanFloor: floorTarget(leanFloor, 'floor on node:http'),
    durableFloor: floorTarget(durableFloor, 'floor with durable turns'),
    host: hostTarget(host, mintTokens(USERS, host.did ?? '')),
  };
}

/** A host that calls the stub and has no limits of requests. */
export function buildHostEnv(stub: ServerProcess, dataDir: string): Record<string, string> {
  return {
    PORT: '0',
    DATA_DIR: dataDir,
    MODEL: 'openai-compatible/stub',
    MODEL_BASE_URL: stub.url,
    LOG_LEVEL: 'warn',
    RATE_LIMIT_PER_MINUTE: MANY,
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: MANY,
    TURNS_PER_USER: MANY,
  };
}

export interface Session {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** A server that answers messages, and the format of its requests. */
export interface Target {
  readonly name: string;
  readonly server: ServerProcess;
  openSession(): Promise<Session>;
  buildBody(message: string, kind: 'json' | 'stream'): string;
}

const JSON_TYPE = { 'content-type': 'application/json' };

/** The model, called as the servers call it. */
function stubTarget(server: ServerProcess): Target {
  const session = { path: '/v1/chat/completions', headers: JSON_TYPE };
  const url = server.url.replace(/\/v1$/, '');
  return {
    name: 'the model itself',
    server: { ...server, url },
    openSession: async () => session,
    buildBody: (content) =>
      JSON.stringify({ model: 'stub', stream: true, messages: [{ role: 'user', content }] }),
  };
}

function floorTarget(server: ServerProcess, name: string): Target {
  return {
    name,
    server,
    openSession: async () => ({ path: `/messages/${randomUUID()}`, headers: JSON_TYPE }),
    buildBody: buildServerBody,
  };
}

/** The host, with several users. */
function hostTarget(server: ServerProcess, tokens: readonly string[]): Target {
  let opened = 0;
  return {
    name: 'host',
    server,
    openSession: async () => {
      const token = tokens[opened++ % tokens.length];
      const headers = { ...JSON_TYPE, authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
      // With a title from the start: to generate one the host would call the model twice, unlike the floor.
      const body = JSON.stringify({ title: 'Bench' });
      const { text } = await post({ url: server.url, path: '/sessions', headers, body });
      return { path: `/messages/${JSON.parse(text).sessionId}`, headers };
    },
    buildBody: buildServerBody,
  };
}

function buildServerBody(message: string, kind: 'json' | 'stream'): string {
  return JSON.stringify(kind === 'stream' ? { message, stream: true } : { message });
}

interface PostOptions {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface Posted {
  readonly text: string;
  /** Milliseconds from sending to the first token. */
  readonly firstTokenMs: number;
  /** All bytes of the response: status line, headers, framing and body. */
  readonly bytes: number;
}

const agent = new Agent({ keepAlive: true });

/** A token of the stub. */
export const TOKEN = 'word ';

/** Sends one request over a kept-alive connection and reads the whole response. */
export function post(options: PostOptions): Promise<Posted> {
  const { url, path, headers, body } = options;
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const start = performance.now();
    const sent = request(
      {
        agent,
        hostname,
        port,
        path,
        method: 'POST',
        headers: { ...headers, 'content-length': Buffer.byteLength(body) },
      },
      (reply) => readReply(reply, start).then(resolve, reject),
    );
    sent.once('error', (error: NodeJS.ErrnoException) => {
      // The server closed an idle connection that was reused.
      if (sent.reusedSocket && error.code === 'ECONNRESET') resolve(post(options));
      else reject(error);
    });
    sent.end(body);
  });
}

const alreadyRead = new WeakMap<object, number>();

function readReply(reply: IncomingMessage, start: number): Promise<Posted> {
  return new Promise((resolve, reject) => {
    const { socket } = reply;
    let text = '';
    let firstTokenMs = 0;
    reply.setEncoding('latin1');
    reply.on('data', (chunk: string) => {
      text += chunk;
      if (firstTokenMs === 0 && chunk.includes(TOKEN)) firstTokenMs = performance.now() - start;
    });
    reply.once('error', reject);
    reply.once('end', () => {
      const bytes = socket.bytesRead - (alreadyRead.get(socket) ?? 0);
      alreadyRead.set(socket, socket.bytesRead);
      if (reply.statusCode === 200 || reply.statusCode === 201)
        resolve({ text, firstTokenMs, bytes });
      else reject(new Error(`${reply.statusCode}: ${text}`));
    });
  });
}
