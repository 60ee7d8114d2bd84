import { sendRequests } from '../support/http-load.ts';
import type { ServerProcess } from '../support/server-process.ts';
import { createCaller } from './chain.ts';
import type { Query } from './queries.ts';

const SECONDS = 3;
const CONNECTIONS = 32;

/** The result of one round. */
export interface Load {
  readonly perSecond: number;
  /** Processor time of the server per request. */
  readonly cpuMicros: number;
  /** Share of one core that the load generator took. */
  readonly ownShare: number;
}

/** A server under load. */
export interface Target {
  readonly name: string;
  run(query: Query): Promise<Load>;
}

/** A server over HTTP: with the same request each time, or with a new one each time. */
export function httpTarget(name: string, server: ServerProcess, requests: 'same' | 'new'): Target {
  let sent = 0;
  return {
    name,
    run(query) {
      return measure(server, () => {
        const end = performance.now() + SECONDS * 1000;
        return sendRequests(server.url, CONNECTIONS, () => {
          if (performance.now() > end) return undefined;
          return { path: query.buildPath(requests === 'same' ? 0 : ++sent) };
        });
      });
    },
  };
}

/** The node, called by grpc-js without a server in between. */
export function bareTarget(name: string, node: ServerProcess): Target {
  const call = createCaller(node.url);
  return {
    name,
    run: (query) =>
      measure(node, async () => {
        const end = performance.now() + SECONDS * 1000;
        let calls = 0;
        const caller = async () => {
          while (performance.now() < end) {
            await call(query, query.parsePath(query.buildPath(calls)));
            calls++;
          }
        };
        await Promise.all(Array.from({ length: CONNECTIONS }, caller));
        return calls;
      }),
  };
}

async function measure(server: ServerProcess, load: () => Promise<number>): Promise<Load> {
  const cpu = server.cpuMs();
  const own = process.cpuUsage();
  const start = performance.now();
  const done = await load();
  const ms = performance.now() - start;
  const { user, system } = process.cpuUsage(own);
  return {
    perSecond: (done / ms) * 1000,
    cpuMicros: ((server.cpuMs() - cpu) / done) * 1000,
    ownShare: (user + system) / 1000 / ms,
  };
}
