import { randomUUID } from 'node:crypto';
import { io, type Socket } from 'socket.io-client';
import { mintTokens } from '../parts/mint-tokens.ts';
import type { ServerProcess } from '../parts/server-process.ts';
import type { Pulse } from './pulse.ts';

/** A client in a session of its own, which can ask for its events. */
export interface Listener {
  readonly sessionId: string;
  readonly socket: Socket;
  /** Resolves when the server has told all and the client has heard it. */
  start(pulse: Pulse): Promise<void>;
}

export interface Target {
  readonly name: string;
  readonly server: ServerProcess;
  /** Connects a client, each one another user. */
  connect(): Promise<Listener>;
}

export function bareTarget(server: ServerProcess): Target {
  return {
    name: 'bare Socket.IO',
    server,
    connect: async () => {
      const sessionId = randomUUID();
      const socket = await open(server.url, sessionId, {});
      return {
        sessionId,
        socket,
        start: (pulse) => socket.emitWithAck('pulse', pulse),
      };
    },
  };
}

export function hostTarget(server: ServerProcess): Target {
  return {
    name: 'host',
    server,
    connect: async () => {
      const [invocation = ''] = mintTokens(1, server.did ?? '');
      const post = (path: string, body: object) => postJson(server.url + path, invocation, body);
      const { sessionId } = await post('/sessions', {});
      const socket = await open(server.url, sessionId, { invocation });
      const start = async (pulse: Pulse) => {
        await post(`/messages/${sessionId}`, { message: `use pulse ${JSON.stringify(pulse)}` });
        await answerTo(socket);
      };
      return { sessionId, socket, start };
    },
  };
}

/** Comes behind all that was told before it was asked for. */
function answerTo(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('pong', () => resolve());
    socket.emit('ping');
  });
}

function open(url: string, sessionId: string, auth: object): Promise<Socket> {
  const socket = io(url, {
    query: { sessionId },
    auth: { ...auth },
    transports: ['websocket'],
    forceNew: true,
    reconnection: false,
  });
  return new Promise((resolve, reject) => {
    socket.once('connected', () => resolve(socket));
    socket.once('connect_error', reject);
  });
}

async function postJson(url: string, bearer: string, body: object) {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${bearer}`,
      'x-auth-type': 'ucan',
    },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as { sessionId: string };
}
