import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bearer, useSurfaceHost } from './support/surface-host.js';

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const IMAGE = `data:image/png;base64,${PIXEL}`;

/** A PNG of this size: what follows its end does not matter. */
const createImage = (bytes: number) =>
  `data:image/png;base64,${Buffer.concat([Buffer.from(PIXEL, 'base64'), Buffer.alloc(bytes)]).toString('base64')}`;

let pictures: Server;
beforeAll(() => {
  pictures = createServer((request, response) => {
    if (request.url !== '/cat.png') return void response.writeHead(404).end();
    response.end(Buffer.from(PIXEL, 'base64'));
  }).listen(0, '127.0.0.1');
});
afterAll(() => pictures.close());

const test = useSurfaceHost({
  env: { OUTGOING_ALLOW: '127.0.0.0/8', FILES_PER_USER: '10mb' },
});

const send = (path: string, body: object) =>
  fetch(test.host.url + path, {
    method: 'POST',
    headers: { ...bearer(test.key), 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

const listFiles = async () => (await test.alice.request('GET', '/files')).body.files;
const show = (url: string) => [
  { type: 'text', text: 'What is this?' },
  { type: 'image_url', image_url: { url } },
];

describe('POST /v1/chat/completions', () => {
  it('stores the pictures of a message as files, once however often the conversation is sent', async () => {
    const first = { role: 'user', content: show(IMAGE) };
    const chat = (messages: object[]) =>
      send('/v1/chat/completions', { model: 'default', messages });
    const one = chat([first]);
    const turn = await test.model.next();
    expect(JSON.stringify(turn.body.messages.at(-1))).toContain('image.png');
    turn.answer('A pixel.');
    expect((await one).status).toBe(200);
    const stored = await listFiles();
    expect(stored).toMatchObject([{ name: 'image.png', mediaType: 'image/png' }]);

    const two = chat([
      first,
      { role: 'assistant', content: 'A pixel.' },
      { role: 'user', content: 'Which color?' },
    ]);
    const next = await test.model.next();
    // The model still knows the picture.
    expect(JSON.stringify(next.body.messages.at(1))).toContain('image.png');
    next.answer('Black.');
    expect((await two).status).toBe(200);
    expect(await listFiles()).toEqual(stored);
  });

  it('stores pictures in a stored session as attachments of their message', async () => {
    const body = {
      model: 'default',
      messages: [{ role: 'user', content: show(IMAGE) }],
      store: true,
    };
    const reply = send('/v1/chat/completions', body);
    (await test.model.next()).answer('A pixel.');
    await reply;
    const { sessions } = (await test.alice.request('GET', '/sessions')).body;
    const path = `/messages/${sessions[0].sessionId}`;
    const { messages } = (await test.alice.request('GET', path)).body;
    const [file] = await listFiles();
    expect(messages[0]).toMatchObject({
      content: 'What is this?',
      attachments: [{ fileId: file.fileId, mimetype: 'image/png' }],
    });
  });

  it('reads pictures and files by their address, and says which one it cannot read', async () => {
    const at = (path: string) =>
      `http://127.0.0.1:${(pictures.address() as AddressInfo).port}${path}`;
    const ask = (url: string) =>
      send('/v1/chat/completions', {
        model: 'default',
        messages: [{ role: 'user', content: show(url).slice(1) }],
      });
    const reply = ask(at('/cat.png'));
    const turn = await test.model.next();
    expect(JSON.stringify(turn.body.messages.at(-1))).toContain('cat.png');
    turn.answer('A cat.');
    expect((await reply).status).toBe(200);
    expect(await listFiles()).toMatchObject([{ name: 'cat.png', mediaType: 'image/png' }]);
    const missing = await ask(at('/dog.png'));
    expect(missing.status).toBe(400);
    expect((await missing.json()).error.message).toContain('answered 404');
    const inner = await ask('http://10.0.0.1/cat.png');
    expect(inner.status).toBe(400);
    const broken = await ask('data:image/png;base64,');
    expect([broken.status, (await broken.json()).error.message]).toEqual([
      400,
      expect.stringContaining('data:'),
    ]);
  });

  it('accepts pictures that are larger than other bodies may be, within the room of the user', async () => {
    const ask = (bytes: number) =>
      send('/v1/chat/completions', {
        model: 'default',
        messages: [{ role: 'user', content: show(createImage(bytes)) }],
      });
    const reply = ask(3 * 1024 ** 2);
    (await test.model.next()).answer('Large.');
    expect((await reply).status).toBe(200);
    expect((await ask(8 * 1024 ** 2)).status).toBe(413);
    expect(await listFiles()).toHaveLength(1);
    expect((await ask(17 * 1024 ** 2)).status).toBe(413);
  });

  it('refuses audio, ids of files, and files of other roles with a text that says so', async () => {
    const file = { type: 'file', file: { file_id: 'file-1' } };
    const audio = { type: 'input_audio', input_audio: { data: 'AA', format: 'wav' } };
    for (const message of [
      { role: 'user', content: [file] },
      { role: 'user', content: [audio] },
      { role: 'system', content: show(IMAGE) },
    ]) {
      const reply = await send('/v1/chat/completions', { model: 'default', messages: [message] });
      expect(reply.status).toBe(400);
    }
    expect(await listFiles()).toEqual([]);
  });
});

it('POST /v1/responses stores input_image and input_file', async () => {
  const notes = Buffer.from('The harvest of 2031 was 42 tons.').toString('base64');
  const content = [
    { type: 'input_text', text: 'How much?' },
    { type: 'input_image', image_url: IMAGE, detail: 'auto' },
    { type: 'input_file', filename: 'notes.txt', file_data: `data:text/plain;base64,${notes}` },
  ];
  const reply = send('/v1/responses', { input: [{ role: 'user', content }] });
  const turn = await test.model.next();
  expect(JSON.stringify(turn.body.messages.at(-1))).toContain('42 tons');
  turn.answer('42.');
  expect((await reply).status).toBe(200);
  expect((await listFiles()).map(({ name }: { name: string }) => name).toSorted()).toEqual([
    'image.png',
    'notes.txt',
  ]);
});

it.each([
  ['image', { type: 'image', source: { type: 'data', value: PIXEL, mimeType: 'image/png' } }],
  ['binary', { type: 'binary', mimeType: 'image/png', data: PIXEL, filename: 'image.png' }],
])('POST /v2/agent/run stores parts of type %s, and only once', async (_, part) => {
  const content = [part];
  const run = (more: object[] = []) =>
    send('/v2/agent/run', {
      threadId: 'thread',
      runId: 'run',
      messages: [{ id: 'one', role: 'user', content }, ...more],
    });
  const first = run();
  const turn = await test.model.next();
  expect(JSON.stringify(turn.body.messages.at(-1))).toContain('image.png');
  turn.answer('A pixel.');
  await (await first).text();
  const second = run([{ id: 'two', role: 'user', content: 'Which color?' }]);
  const next = await test.model.next();
  // The picture without a text is neither edited nor new.
  expect(next.body.messages.filter(({ role }: { role: string }) => role === 'user')).toHaveLength(
    2,
  );
  next.answer('Black.');
  await (await second).text();
  expect(await listFiles()).toMatchObject([{ name: 'image.png' }]);
});

it('POST /ui/chat stores file parts', async () => {
  const parts = [{ type: 'file', mediaType: 'image/png', filename: 'pixel.png', url: IMAGE }];
  const reply = send('/ui/chat', { id: 'chat', messages: [{ id: 'u', role: 'user', parts }] });
  const turn = await test.model.next();
  expect(JSON.stringify(turn.body.messages.at(-1))).toContain('pixel.png');
  turn.answer('A pixel.');
  await (await reply).text();
  expect(await listFiles()).toMatchObject([{ name: 'pixel.png', mediaType: 'image/png' }]);
});
