import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, onTestFailed } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../host/test/support/controlled-model.js';
import { findFreePort } from '../../../host/test/support/free-port.js';
import { type HostProcess, runHost, untilListening } from '../../../host/test/support/process.js';

/** A server process with a model that the test controls. */
export interface RunningOracle {
  readonly url: string;
  readonly did: string;
  readonly model: ControlledModel;
  /** Ends the server without a chance to finish anything. */
  kill(): Promise<void>;
  /** Starts it again at the same address, with the same data. */
  restart(): Promise<void>;
}

/** The visitors of all tests have the same address, and load the page often. */
const MANY_VISITORS = { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000' };

export function useOracle(env: Record<string, string> = {}, main?: string): RunningOracle {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-page-'));
  let host: HostProcess;
  const start = async (port: string) => {
    const own = { PORT: port, DATA_DIR: dataDir, ...MANY_VISITORS };
    host = runHost({ ...own, ...running.model?.env, ...env }, [], main);
    running.url = await untilListening(host);
  };
  const running: { -readonly [Key in keyof RunningOracle]?: RunningOracle[Key] } = {
    url: '',
    did: '',
    kill: async () => {
      host.child.kill('SIGKILL');
      await host.ended;
    },
    restart: () => start(new URL(running.url ?? '').port),
  };
  beforeAll(async () => {
    running.model = await startControlledModel();
    // One that stays free while the server is down.
    await start(String(await findFreePort()));
    const card = await fetch(`${running.url}/.well-known/oracle.json`);
    running.did = (await card.json()).did;
  });
  beforeEach(() => {
    // A test that failed may still wait for a call of the model.
    running.model?.discard();
    const before = host.output().length;
    onTestFailed(() => {
      process.stderr.write(`The host wrote:\n${host.output().slice(before)}\n`);
    });
  });
  afterAll(async () => {
    host?.child.kill('SIGTERM');
    await host?.ended;
    running.model?.close();
    rmSync(dataDir, { recursive: true, force: true });
  });
  return running as RunningOracle;
}
