import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const FROM_SOURCE = [
  '--experimental-transform-types',
  '--disable-warning=ExperimentalWarning',
  '--conditions=sibyl-source',
  '--import',
  new URL('./source-hooks.ts', import.meta.url).href,
];
const DEMO_CHAIN = new URL('../../../demo-chain/src/index.ts', import.meta.url).href;
const PROGRAM = `
  const { startDemoChain } = await import(${JSON.stringify(DEMO_CHAIN)});
  process.stdout.write((await startDemoChain()).url + '\\n');
`;

/** A node that is a process, so that it can be killed. */
export interface NodeProcess {
  readonly url: string;
  /** Ends it as a crash does. */
  kill(): Promise<void>;
}

/** Starts the demo chain as a process. */
export async function startNodeProcess(): Promise<NodeProcess> {
  const child: ChildProcess = spawn(
    process.execPath,
    [...FROM_SOURCE, '--input-type=module', '--eval', PROGRAM],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const exited = once(child, 'exit');
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  const [url] = (await once(lines, 'line')) as [string];
  return {
    url,
    kill: async () => {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
