import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type Command, fail } from '../command.js';
import { loadGateway, loadHost, setVariable, variable } from '../environment.js';

/** Runs the query gateway in this folder. */
export const gateway: Command = {
  name: 'gateway',
  summary: "Serve a blockchain's gRPC queries as HTTP/JSON",
  usage: ['[--port <number>]'],
  details:
    'GATEWAY_UPSTREAMS names the nodes. Reads its configuration from the environment and from .env in this folder.',
  options: {
    port: {
      type: 'string',
      short: 'p',
      value: 'number',
      summary: 'Port to listen on; default: GATEWAY_PORT or 3001',
    },
  },
  async run({ options }) {
    if (typeof options.port === 'string') setVariable('GATEWAY_PORT', options.port);
    // Forked by an oracle, it must not outlive it.
    process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
    process.channel?.unref();
    const { serve } = await loadGateway();
    return serve(fail);
  },
};

const MAIN = fileURLToPath(new URL('../main.js', import.meta.url));

/** A query gateway in a child process, which ends with this one. */
export interface GatewayProcess {
  /** Resolves once it has ended. */
  stop(): Promise<void>;
}

export interface GatewayProcessOptions {
  /** URL of a module that the process loads before the gateway. */
  readonly preload?: string;
}

/**
 * Starts a gateway as the environment configures it, for the oracle of this process to use unless that has
 * another; undefined, having said why, where its port is taken.
 */
export async function startGateway({
  preload,
}: GatewayProcessOptions = {}): Promise<GatewayProcess | undefined> {
  const host = variable('GATEWAY_HOST') ?? '127.0.0.1';
  const wanted = variable('GATEWAY_PORT') ?? '3001';
  try {
    const port = await freePort(Number(wanted), host);
    const child = forkGateway(port, preload);
    const address = `${toLocalAddress(host)}:${port}`;
    if (!variable('GATEWAY_URL')) useGateway(address);
    return { stop: () => stop(child) };
  } catch (error) {
    const { message } = error as Error;
    warn(`The gateway cannot start (${message}): set GATEWAY_PORT to another port`);
    return undefined;
  }
}

/** The oracle refuses private addresses that are not allow-listed. */
function useGateway(address: string): void {
  setVariable('GATEWAY_URL', `http://${address}`);
  const allowed = variable('OUTGOING_ALLOW');
  setVariable('OUTGOING_ALLOW', allowed ? `${allowed},${address}` : address);
}

/** Where a server that listens on this host is reached from here. */
function toLocalAddress(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
}

function forkGateway(port: number, preload: string | undefined): ChildProcess {
  const isTerminal = Boolean(process.stdout.isTTY);
  const child = fork(MAIN, ['gateway', '--port', String(port)], {
    execArgv: [...process.execArgv, ...(preload ? ['--import', preload] : [])],
    stdio: ['ignore', isTerminal ? 'pipe' : 'inherit', 'inherit', 'ipc'],
  });
  if (child.stdout) createInterface(child.stdout).on('line', showLine);
  child.once('exit', (code, signal) => {
    if (code !== 0) warn(`The gateway has ended (${signal ?? `exit code ${code}`})`);
  });
  return child;
}

/** A log line as people read it; programs get it as it is. */
function showLine(line: string): void {
  const [, message] = /"msg":("(?:[^"\\]|\\.)*")/.exec(line) ?? [];
  process.stdout.write(`gateway: ${message ? JSON.parse(message) : line}\n`);
}

function warn(fault: string): void {
  process.stderr.write(`${fault}; the oracle runs without it\n`);
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.removeAllListeners('exit');
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}

/** The port if it is free, any free one for 0; rejects as listening does. */
async function freePort(port: number, host: string): Promise<number> {
  const server = createServer().listen({ port, host, exclusive: true });
  await once(server, 'listening');
  const { port: free } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return free;
}

/** Runs the host in this folder. */
export const start: Command = {
  name: 'start',
  summary: 'Run an oracle with the bundled plugins',
  usage: ['[--port <number>] [--with-gateway]'],
  details:
    'Reads its configuration from the environment and from .env in this folder. Ctrl-C stops it, after the running turns finish.',
  options: {
    port: {
      type: 'string',
      short: 'p',
      value: 'number',
      summary: 'Port to listen on; default: PORT or 3000',
    },
    'with-gateway': {
      type: 'boolean',
      summary: 'Run the query gateway beside it, and let the agent use it',
    },
  },
  async run({ options }) {
    if (typeof options.port === 'string') setVariable('PORT', options.port);
    const gateway = options['with-gateway'] ? await startGateway() : undefined;
    const { serve } = await loadHost();
    try {
      return await serve({}, fail);
    } finally {
      await gateway?.stop();
    }
  },
};
