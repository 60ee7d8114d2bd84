import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { StubOptions } from '../../packages/host/test/support/model-servers/chat-completions-stub.ts';
import { mintTokens } from '../parts/mint-tokens.ts';
import { type ServerProcess, startServer } from '../parts/server-process.ts';
import { floorTarget, hostTarget, stubTarget, type Target } from './load/target.ts';

const USERS = 32;
const MANY = '100000000';
const SCRIPTS = {
  stub: new URL('./servers/stub.ts', import.meta.url),
  floor: new URL('./servers/floor.ts', import.meta.url),
  host: new URL('./servers/host.ts', import.meta.url),
};

/** A model and the servers that ask it, each in a process of its own. */
export interface Scene {
  readonly stub: Target;
  /** The floor the targets are set against: it asks the model by fetch. */
  readonly floor: Target;
  /** The same on node:http, which is what the host is built on. */
  readonly leanFloor: Target;
  readonly host: Target;
}

/** Sets a scene, lets it play and clears it away. */
export async function inScene<T>(
  options: StubOptions,
  play: (scene: Scene) => Promise<T>,
): Promise<T> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
  const started: ServerProcess[] = [];
  try {
    return await play(await setScene(options, dataDir, started));
  } finally {
    await Promise.all(started.map((server) => server.stop()));
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function setScene(
  options: StubOptions,
  dataDir: string,
  started: ServerProcess[],
): Promise<Scene> {
  const start = async (name: keyof typeof SCRIPTS, args: string[], env = {}) => {
    const server = await startServer(SCRIPTS[name], { args, env });
    started.push(server);
    return server;
  };
  const tool = options.toolCall ? 'with-tool' : 'without-tool';
  const stub = await start('stub', [JSON.stringify(options)]);
  const floor = await start('floor', [stub.url, dataDir, 'fetch', tool]);
  const leanFloor = await start('floor', [stub.url, dataDir, 'http', tool]);
  const host = await start('host', [tool], hostEnv(stub, dataDir));
  return {
    stub: stubTarget(stub),
    floor: floorTarget(floor, 'floor on fetch'),
    leanFloor: floorTarget(leanFloor, 'floor on node:http'),
    host: hostTarget(host, mintTokens(USERS, host.did ?? '')),
  };
}

function hostEnv(stub: ServerProcess, dataDir: string): Record<string, string> {
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
