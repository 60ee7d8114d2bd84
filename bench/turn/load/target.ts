import { randomUUID } from 'node:crypto';
import type { ServerProcess } from '../../parts/server-process.ts';
import { post } from './post.ts';

export interface Session {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Something that answers messages, and how it wants to be asked. */
export interface Target {
  readonly name: string;
  readonly server: ServerProcess;
  openSession(): Promise<Session>;
  bodyOf(message: string, kind: 'json' | 'stream'): string;
}

const JSON_TYPE = { 'content-type': 'application/json' };

/** The model itself, asked as the servers ask it. */
export function stubTarget(server: ServerProcess): Target {
  const session = { path: '/v1/chat/completions', headers: JSON_TYPE };
  const url = server.url.replace(/\/v1$/, '');
  return {
    name: 'the model itself',
    server: { ...server, url },
    openSession: async () => session,
    bodyOf: (content) =>
      JSON.stringify({ model: 'stub', stream: true, messages: [{ role: 'user', content }] }),
  };
}

export function floorTarget(server: ServerProcess, name: string): Target {
  return {
    name,
    server,
    openSession: async () => ({ path: `/messages/${randomUUID()}`, headers: JSON_TYPE }),
    bodyOf: serverBody,
  };
}

/** The host, used by several people who each sign with a key of their own. */
export function hostTarget(server: ServerProcess, tokens: readonly string[]): Target {
  let opened = 0;
  return {
    name: 'host',
    server,
    openSession: async () => {
      const token = tokens[opened++ % tokens.length];
      const headers = { ...JSON_TYPE, authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
      // With a title from the start: making one is a second call of the model, which the floor never makes.
      const body = JSON.stringify({ title: 'Bench' });
      const { text } = await post({ url: server.url, path: '/sessions', headers, body });
      return { path: `/messages/${JSON.parse(text).sessionId}`, headers };
    },
    bodyOf: serverBody,
  };
}

function serverBody(message: string, kind: 'json' | 'stream'): string {
  return JSON.stringify(kind === 'stream' ? { message, stream: true } : { message });
}
