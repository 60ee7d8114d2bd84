import { createCipheriv, createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { startHomeserver, type TestHomeserver, withOracle } from './support/homeserver.js';
import { tinyPdf } from './support/tiny-pdf.js';

let home: TestHomeserver;
let model: ControlledModel;
let host: TestHost;
let alice: TestUser;

const png = Buffer.from('\x89PNG\r\n\x1a\n and more', 'latin1');

beforeAll(async () => {
  home = await startHomeserver();
  home.users.set('alice-token', '@alice:test');
  model = await startControlledModel();
  host = await startHost({ env: { ...model.env, ...withOracle(home) } });
  alice = new TestUser(host);
});

afterAll(async () => {
  await host?.close();
  model?.close();
  await home?.close();
});

interface Sent {
  readonly attachments: object[];
  readonly headers?: Record<string, string>;
  readonly metadata?: object;
  readonly sessionId?: string;
}

/** Sends a message with files; what the model was asked, and the frames of the run. */
async function send({ attachments, headers, metadata, sessionId }: Sent) {
  const session = sessionId ?? (await openSession(alice));
  const body = { message: 'What is in it?', attachments, ...(metadata && { metadata }) };
  const reply = await stream(alice, session, body, {
    'x-matrix-access-token': 'alice-token',
    ...headers,
  });
  const asked = await model.next();
  asked.say('ok');
  asked.finish();
  return { sessionId: session, prompt: JSON.stringify(asked.body), frames: await reply.toEnd() };
}

const file = (name: string, mimetype: string) => ({
  mxcUri: `mxc://test/${name}`,
  filename: name,
  mimetype,
});

const warnings = (frames: readonly { event: string; data: { message?: string } }[]) =>
  frames.filter(({ event }) => event === 'warning').map(({ data }) => data.message);

describe('FileReader: files of a message', () => {
  it.each([
    ['CSV', 'data.csv', 'text/csv', Buffer.from('plot,carbon\nA1,42'), 'A1,42'],
    ['JSON', 'data.json', 'application/json', Buffer.from('{"plot":"A1"}'), 'plot'],
    [
      'CSV of Windows',
      'windows.csv',
      'application/vnd.ms-excel',
      Buffer.from('Stra\xdfe;Gr\xf6\xdfe\r\nA1;42', 'latin1'),
      'Straße;Größe',
    ],
    [
      'UTF-16',
      'utf-16.txt',
      'text/plain',
      Buffer.from('\uFEFFNaïve plots', 'utf16le'),
      'Naïve plots',
    ],
    [
      'text with a charset',
      'greek.txt',
      'text/plain; charset=iso-8859-7',
      Buffer.from([0xe3, 0xe5, 0xe9, 0xdc]),
      'γειά',
    ],
    [
      'text of no particular type',
      'notes.txt',
      'application/octet-stream',
      Buffer.from('written by hand'),
      'written by hand',
    ],
    [
      'a PDF',
      'paper.pdf',
      'application/pdf',
      tinyPdf('Soil carbon in Kenya'),
      'Soil carbon in Kenya',
    ],
  ])('reach the model: %s', async (_, name, type, bytes, expected) => {
    home.media.set(name, { bytes });
    const { prompt, frames } = await send({ attachments: [file(name, type)] });
    expect(prompt).toContain(expected);
    expect(warnings(frames)).toEqual([]);
  });

  it('are known in later messages of the session', async () => {
    home.media.set('kept.txt', { bytes: Buffer.from('the code is 7431') });
    const { sessionId } = await send({ attachments: [file('kept.txt', 'text/plain')] });
    const { prompt } = await send({ attachments: [], sessionId });
    expect(prompt).toContain('7431');
  });

  it('are read by the older endpoint where the newer is missing', async () => {
    home.media.set('old.txt', { bytes: Buffer.from('from before'), isLegacy: true });
    const { prompt } = await send({ attachments: [file('old.txt', 'text/plain')] });
    expect(prompt).toContain('from before');
  });

  it('are found by their event, decrypted and checked', async () => {
    const { event, ciphertext } = encrypted('secret.txt', Buffer.from('well kept'));
    home.media.set('secret.txt', { bytes: ciphertext });
    home.events.set('!editor:test $1', event);
    const attachment = { eventId: '$1', filename: 'secret.txt', mimetype: 'text/plain' };
    const metadata = { editorRoomId: '!editor:test' };
    const read = await send({ attachments: [attachment], metadata });
    expect(read.prompt).toContain('well kept');
    home.media.set('secret.txt', { bytes: Buffer.concat([ciphertext, Buffer.from('x')]) });
    const changed = await send({ attachments: [attachment], metadata });
    expect(warnings(changed.frames)).toEqual([expect.stringContaining('hash')]);
  });

  it.each([
    ['of another type than claimed', 'fake.png', 'image/png', Buffer.from('MZ no image')],
    ['of an unsupported type', 'run.exe', 'application/x-msdownload', Buffer.from('MZ\0\x03')],
    ['binary that claims to be text', 'bin.txt', 'text/plain', Buffer.from([1, 0, 2])],
    ['too large', 'big.txt', 'text/plain', Buffer.alloc(25 * 1024 ** 2 + 1, 65)],
  ])(
    'become a note and a warning when %s, and the turn continues',
    async (_, name, type, bytes) => {
      home.media.set(name, { bytes });
      const { prompt, frames } = await send({ attachments: [file(name, type)] });
      expect(prompt).toContain(`${name}\\" cannot be read`);
      expect(warnings(frames)).toEqual([expect.stringContaining(name)]);
      expect(frames.at(-1)).toMatchObject({ event: 'done', data: { status: 'finished' } });
    },
  );

  it.each(['image/jpg', 'application/octet-stream', 'image/png'])(
    'are shown with the type of their bytes: a JPEG that claims to be %s',
    async (type) => {
      const jpeg = Buffer.from('\xff\xd8\xff and more', 'latin1');
      home.media.set('photo.jpg', { bytes: jpeg });
      const { prompt, frames } = await send({ attachments: [file('photo.jpg', type)] });
      expect(prompt).toContain(`data:image/jpeg;base64,${jpeg.toString('base64')}`);
      expect(warnings(frames)).toEqual([]);
    },
  );

  it('stay with their message, when they are images: a photo of turn 1 is seen in turn 3', async () => {
    home.media.set('photo.png', { bytes: png });
    const before = home.requests.length;
    const first = await send({ attachments: [file('photo.png', 'image/png')] });
    const { sessionId } = first;
    await send({ attachments: [], sessionId });
    const third = await send({ attachments: [], sessionId });
    const [, asked] = JSON.parse(first.prompt).messages;
    expect(JSON.stringify(asked)).toContain(png.toString('base64'));
    // In the same place and form, so that it is served from caches.
    expect(JSON.parse(third.prompt).messages[1]).toEqual(asked);
    const downloads = home.requests.slice(before).filter(({ line }) => line.includes('photo.png'));
    expect(downloads).toHaveLength(1);
  });

  it('are read again in later turns after the host has restarted, when they are images', async () => {
    const other = await startHomeserver();
    other.users.set('alice-token', '@alice:test');
    other.media.set('again.png', { bytes: png });
    const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-matrix-'));
    const env = { ...model.env, ...withOracle(other), DATA_DIR: dataDir };
    const owner = new TestUser(host);
    const ask = async (sessionId: string | undefined, attachments: object[]) => {
      const restarted = await startHost({ env });
      const user = owner.at(restarted);
      const session = sessionId ?? (await openSession(user));
      const body = { message: 'What is in it?', attachments };
      const reply = await stream(user, session, body, { 'x-matrix-access-token': 'alice-token' });
      const asked = await model.next();
      asked.answer('ok');
      await reply.toEnd();
      await restarted.close();
      return { session, prompt: JSON.stringify(asked.body) };
    };
    const { session } = await ask(undefined, [file('again.png', 'image/png')]);
    const { prompt } = await ask(session, []);
    expect(prompt).toContain(png.toString('base64'));
    await rm(dataDir, { recursive: true });
    await other.close();
  });

  it("never send the user's token anywhere but to the homeserver they name, nor the oracle's to theirs", async () => {
    const other = await startHomeserver();
    other.users.set('alice-token', '@alice:other');
    other.media.set('there.txt', { bytes: Buffer.from('elsewhere') });
    const before = home.requests.length;
    const { prompt } = await send({
      attachments: [file('there.txt', 'text/plain')],
      headers: { 'x-matrix-homeserver': other.url },
    });
    expect(prompt).toContain('elsewhere');
    expect(other.requests.map(({ token }) => token)).not.toContain('oracle-token');
    const own = home.requests.slice(before).map(({ token }) => token);
    expect(own).not.toContain('alice-token');
    await other.close();
  });

  it.each(['../config', './config', 'test/..', 'test/.'])(
    'at mxc://%s, which is another path of the homeserver, are not read',
    async (place) => {
      const before = home.requests.length;
      const attachment = { ...file('dots.txt', 'text/plain'), mxcUri: `mxc://${place}` };
      const { frames } = await send({ attachments: [attachment] });
      expect(warnings(frames)).toEqual([expect.stringContaining('not an mxc:// one')]);
      const lines = home.requests.slice(before).map(({ line }) => line);
      expect(lines.join()).not.toContain('/media/');
    },
  );

  it('of an event are not read with the rights of the oracle from a room the user names', async () => {
    home.events.set('!foreign:test $2', {
      type: 'm.room.message',
      content: { url: 'mxc://test/x' },
    });
    const { frames } = await send({
      attachments: [{ eventId: '$2', filename: 'x.txt', mimetype: 'text/plain' }],
      metadata: { editorRoomId: '!foreign:test' },
      headers: { 'x-matrix-access-token': '' },
    });
    expect(warnings(frames)).toHaveLength(1);
    expect(home.requests.map(({ line }) => line).join()).not.toContain('%21foreign');
  });

  it('named by their address alone are not read with the rights of the oracle', async () => {
    home.media.set('private.txt', { bytes: Buffer.from('of another user') });
    const { prompt, frames } = await send({
      attachments: [file('private.txt', 'text/plain')],
      headers: { 'x-matrix-access-token': '' },
    });
    expect(prompt).not.toContain('of another user');
    expect(warnings(frames)).toHaveLength(1);
    const asked = home.requests.filter(({ line }) => line.includes('private.txt'));
    expect(asked).toEqual([expect.objectContaining({ token: undefined })]);
  });

  it('on a private address that is not allowed are rejected', async () => {
    const { frames } = await send({
      attachments: [file('a.txt', 'text/plain')],
      headers: { 'x-matrix-homeserver': 'http://169.254.169.254' },
    });
    expect(warnings(frames)).toHaveLength(1);
  });
});

function encrypted(name: string, plain: Buffer) {
  const key = randomBytes(32);
  const iv = randomBytes(16);
  const cipher = createCipheriv('aes-256-ctr', key, iv);
  const ciphertext = Buffer.concat([cipher.update(plain), cipher.final()]);
  const sha256 = createHash('sha256').update(ciphertext).digest('base64').replace(/=+$/, '');
  const encryption = {
    url: `mxc://test/${name}`,
    key: { kty: 'oct', k: key.toString('base64url'), alg: 'A256CTR', ext: true },
    iv: iv.toString('base64').replace(/=+$/, ''),
    hashes: { sha256 },
    v: 'v2',
  };
  return { ciphertext, event: { type: 'm.room.message', content: { file: encryption } } };
}
