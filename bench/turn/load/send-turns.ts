import { setTimeout as sleep } from 'node:timers/promises';
import { type Posted, post, TOKEN } from './post.ts';
import type { Session, Target } from './target.ts';

export interface LoadOptions {
  readonly kind: 'json' | 'stream';
  /** Clients at work at once, each in a session of its own. */
  readonly concurrency: number;
  /** Sessions each client goes through, so that all clients end at about the same time. */
  readonly sessionsPerClient: number;
  /** Turns of a session, after which the next begins; all servers read and send its whole history. */
  readonly turnsPerSession: number;
  /** Time over which the clients begin, one after the other; all at once unless told. */
  readonly spreadMs?: number;
  /** Tokens of every answer. */
  readonly tokens: number;
}

export interface Load {
  readonly seconds: number;
  readonly answers: readonly Posted[];
  /** Of all answers together. */
  readonly tokens: number;
  /** Processor time of the server, per turn. */
  readonly cpuMsPerTurn: number;
  /** How much of one core the load generator itself took, 1 being all of it. */
  readonly ownShare: number;
}

const MESSAGE = 'What does the almanac say about the weather on the coast tomorrow?';

/** Sends turns, one at a time in each session, and takes the time from the first to the last. */
export async function sendTurns(target: Target, options: LoadOptions): Promise<Load> {
  const { concurrency, sessionsPerClient, turnsPerSession } = options;
  const sessions = await openSessions(target, concurrency * sessionsPerClient);
  const answers: Posted[] = [];
  const worker = async (number: number) => {
    if (options.spreadMs) await sleep((number / concurrency) * options.spreadMs);
    for (let session = sessions.pop(); session; session = sessions.pop()) {
      for (let turn = 0; turn < turnsPerSession; turn++)
        answers.push(await sendTurn(target, session, options));
    }
  };
  const cpu = target.server.cpuMs();
  const own = process.cpuUsage();
  const start = performance.now();
  await Promise.all(Array.from({ length: concurrency }, (_, number) => worker(number)));
  const ms = performance.now() - start;
  const { user, system } = process.cpuUsage(own);
  return {
    seconds: ms / 1000,
    answers,
    tokens: answers.length * options.tokens,
    cpuMsPerTurn: (target.server.cpuMs() - cpu) / answers.length,
    ownShare: (user + system) / 1000 / ms,
  };
}

async function openSessions(target: Target, count: number): Promise<Session[]> {
  const sessions: Session[] = [];
  while (sessions.length < count) {
    const some = Math.min(50, count - sessions.length);
    sessions.push(...(await Promise.all(Array.from({ length: some }, () => target.openSession()))));
  }
  return sessions;
}

async function sendTurn(target: Target, session: Session, options: LoadOptions): Promise<Posted> {
  const body = target.bodyOf(MESSAGE, options.kind);
  const answer = await post({ url: target.server.url, ...session, body });
  const tokens = answer.text.split(TOKEN).length - 1;
  if (tokens !== options.tokens)
    throw new Error(`${target.name} answered ${tokens} tokens instead of ${options.tokens}`);
  return answer;
}
