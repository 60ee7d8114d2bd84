import { Agent, request } from 'node:http';

export interface Reply {
  readonly status: number;
  readonly retryAfter: string | undefined;
  readonly code: string | undefined;
}

/** Sends requests from a given loopback address over kept connections, as a flooding client does. */
export class LoopbackClient {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 50 });

  constructor(
    private readonly url: string,
    private readonly localAddress: string,
  ) {}

  get(path: string, headers: Record<string, string> = {}): Promise<Reply> {
    const { agent, localAddress, url } = this;
    const { promise, resolve, reject } = Promise.withResolvers<Reply>();
    const sent = request(url + path, { agent, localAddress, headers }, async (response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk);
      const body = JSON.parse(Buffer.concat(chunks).toString()) as { code?: string };
      resolve({
        status: response.statusCode ?? 0,
        retryAfter: response.headers['retry-after'],
        code: body.code,
      });
    });
    sent.on('error', reject).end();
    return promise;
  }

  close(): void {
    this.agent.destroy();
  }
}

/** How many replies had each status. */
export function countStatuses(replies: readonly Reply[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const { status } of replies) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** Runs a job for each number below `count`, `atOnce` at a time. */
export async function runConcurrently(
  count: number,
  atOnce: number,
  job: (n: number) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  const work = async () => {
    while (next < count) await job(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}
