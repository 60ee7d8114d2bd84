import { loadChainSchema } from './chain-schema.js';
import { createDemoChain } from './demo-chain.js';
import { startGrpcServer } from './grpc-server.js';
import { startBlocks } from './queries/service.js';

const EVERY_MS = 5000;
const PAST = 720;
const KEPT = 500;

/** The built-in chain, running. */
export interface RunningDemoChain {
  /** Where its gRPC server listens. */
  readonly url: string;
  /** Lets the process end while the chain runs. */
  unref(): void;
  close(): Promise<void>;
}

/** Starts the built-in chain: a block every few seconds, and an hour of history whose oldest part is pruned. */
export async function startDemoChain(): Promise<RunningDemoChain> {
  const blocks = startBlocks({ everyMs: EVERY_MS, past: PAST, kept: KEPT });
  const chain = createDemoChain({ schema: loadChainSchema(), blocks });
  const { url, unref, close } = await startGrpcServer(chain);
  return { url, unref, close };
}
