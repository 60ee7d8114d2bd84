import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { openSession, type SseStream, stream } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { startHomeserver, type TestHomeserver } from './support/homeserver.js';

/** A homeserver that takes connections and never answers. */
interface HangingHomeserver {
  readonly url: string;
  /** Connections that are open. */
  readonly open: Set<Socket>;
  /** Connections that were ever made. */
  accepted: number;
  readonly server: Server;
}

let hanging: HangingHomeserver;
let home: TestHomeserver;
let model: ControlledModel;
let host: TestHost | undefined;

beforeEach(async () => {
  hanging = await startHanging();
  home = await startHomeserver();
  home.users.set('bob-token', '@bob:test');
  home.media.set('note.txt', { bytes: Buffer.from('the code is 7431') });
  model = await startControlledModel();
});

afterEach(async () => {
  await host?.close();
  model.close();
  await home.close();
  for (const socket of hanging.open) socket.destroy();
  hanging.server.close();
});

async function startHanging(): Promise<HangingHomeserver> {
  const server = createServer(() => undefined);
  const state = { open: new Set<Socket>(), accepted: 0, server };
  server.on('connection', (socket) => {
    state.accepted += 1;
    state.open.add(socket);
    socket.on('close', () => state.open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(state, { url: `http://127.0.0.1:${port}` });
}

const start = (env: Record<string, string> = {}) =>
  startHost({ env: { ...model.env, OUTGOING_ALLOW: '127.0.0.1', ...env } });

const files = (count: number) =>
  Array.from({ length: count }, (_, i) => ({
    mxcUri: `mxc://test/${i}`,
    filename: `${i}.txt`,
    mimetype: 'text/plain',
  }));

/** Sends a message whose files are on the homeserver that hangs. */
async function sendHanging(user: TestUser): Promise<{ reply: SseStream; sessionId: string }> {
  const sessionId = await openSession(user);
  const body = { message: 'Read them', attachments: files(10), homeServer: hanging.url };
  return { sessionId, reply: await stream(user, sessionId, body) };
}

describe('FileReader: files on a homeserver that hangs', () => {
  it("do not keep another user's file from being read, and let go of everything on POST /messages/abort", async () => {
    host = await start();
    const alice = new TestUser(host);
    const bob = new TestUser(host);
    const sent = await Promise.all(Array.from({ length: 8 }, () => sendHanging(alice)));
    await expect.poll(() => hanging.open.size).toBeGreaterThan(0);
    const headers = { 'x-matrix-access-token': 'bob-token', 'x-matrix-homeserver': home.url };
    const attachment = { ...files(1)[0], mxcUri: 'mxc://test/note.txt', filename: 'note.txt' };
    const body = { message: 'Read it', attachments: [attachment] };
    const ofBob = await stream(bob, await openSession(bob), body, headers);
    const asked = await nextAbout('Read it');
    expect(JSON.stringify(asked.body)).toContain('7431');
    asked.answer('ok');
    await ofBob.toEnd();
    expect(hanging.open.size).toBeLessThanOrEqual(2);
    for (const { sessionId } of sent)
      await alice.request('POST', '/messages/abort', { body: { sessionId } });
    await Promise.all(sent.map(({ reply }) => reply.toEnd()));
    await expect.poll(() => hanging.open.size).toBe(0);
    const before = hanging.accepted;
    const again = await sendHanging(alice);
    await expect.poll(() => hanging.accepted).toBeGreaterThan(before);
    await alice.request('POST', '/messages/abort', { body: { sessionId: again.sessionId } });
    await again.reply.toEnd();
  });

  it('are not read any longer than their turn takes', async () => {
    host = await start({ PLUGIN_TIMEOUT_SECONDS: '1' });
    const answering = answerAll(model);
    const { reply } = await sendHanging(new TestUser(host));
    await reply.toEnd();
    await expect.poll(() => hanging.open.size).toBe(0);
    const { accepted } = hanging;
    await host.close();
    // At most one for each file, and one that finds out how slow the homeserver is.
    expect(accepted).toBeLessThanOrEqual(11);
    expect(hanging.accepted).toBe(accepted);
    answering.stop();
  });
});

/** The next call of the model about this message; on a slow machine, others may come first. */
async function nextAbout(message: string): Promise<ModelTurn> {
  for (;;) {
    const asked = await model.next();
    if (JSON.stringify(asked.body).includes(message)) return asked;
    asked.answer('ok');
  }
}

/** Answers every call of the model, however many there are. */
function answerAll({ next }: ControlledModel) {
  let isStopped = false;
  const answer = async () => {
    while (!isStopped) (await next()).answer('ok');
  };
  void answer();
  return {
    stop: () => {
      isStopped = true;
    },
  };
}
