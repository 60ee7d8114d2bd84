import { askOverHttp } from '../../parts/ask-over-http.ts';
import type { ServerProcess } from '../../parts/server-process.ts';
import type { Query } from '../queries.ts';
import { createCaller } from './grpc-js-caller.ts';

const SECONDS = 3;
const CONNECTIONS = 32;

/** What was done in one round. */
export interface Load {
  readonly perSecond: number;
  /** Processor time of one request, of the server that answers it. */
  readonly cpuMicros: number;
  /** Share of one core that asking took. */
  readonly ownShare: number;
}

/** Something that is put under load with a query. */
export interface Target {
  readonly name: string;
  run(query: Query): Promise<Load>;
}

/** A server asked over HTTP: always for the same, or each time for something it was never asked before. */
export function httpTarget(name: string, server: ServerProcess, asks: 'same' | 'new'): Target {
  let asked = 0;
  return {
    name,
    run(query) {
      return measure(server, () => {
        const end = performance.now() + SECONDS * 1000;
        return askOverHttp(server.url, CONNECTIONS, () => {
          if (performance.now() > end) return undefined;
          return { path: query.pathOf(asks === 'same' ? 0 : ++asked) };
        });
      });
    },
  };
}

/** The node asked by grpc-js from here, with nothing in between. */
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
            await call(query, query.requestOf(query.pathOf(calls)));
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
