import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { json } from 'node:stream/consumers';
import { unzipSync } from 'fflate';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createDocx, createPdf, createXlsx } from './support/documents.js';
import { startHost, type TestHost } from './support/host.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { postFile, upload, uploadText, waitForText } from './support/upload.js';
import { TestUser } from './support/user.js';

describe.each(engines)('/files on %s', (engine) => {
  let database: TestDatabase;
  let host: TestHost;
  let alice: TestUser;
  let bob: TestUser;
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    host = await startHost({ env: { ...database.env, FILE_LIMIT: '3mb', FILES_PER_USER: '6mb' } });
    alice = new TestUser(host);
    bob = new TestUser(host);
  });
  afterAll(async () => {
    await host?.close();
    await database?.drop();
  });

  const get = (
    user: TestUser,
    path: string,
    headers: Record<string, string> = {},
    method = 'GET',
  ) => fetch(host.url + path, { method, headers: { ...user.headers, ...headers } });

  it('POST /files stores a body of several chunks, and GET returns the same bytes', async () => {
    const bytes = randomBytes(700_000);
    const file = await upload(alice, 'noise.bin', bytes);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    expect(file).toMatchObject({ name: 'noise.bin', size: 700_000, sha256 });
    expect(file).toMatchObject({ mediaType: 'application/octet-stream', text: { status: 'none' } });
    const reply = await get(alice, `/files/${file.fileId}`);
    expect(Buffer.from(await reply.arrayBuffer()).equals(bytes)).toBe(true);
    expect(reply.headers.get('content-disposition')).toBe('attachment; filename=noise.bin');
    expect(reply.headers.get('content-security-policy')).toContain('sandbox');
    expect(reply.headers.get('x-content-type-options')).toBe('nosniff');
  });

  it('GET and HEAD /files/:fileId answer ranges across chunks', async () => {
    const bytes = randomBytes(600_000);
    const { fileId } = await upload(alice, 'ranges.bin', bytes);
    for (const [range, start, end] of [
      ['bytes=0-0', 0, 1],
      ['bytes=262000-524500', 262_000, 524_501],
      ['bytes=599990-', 599_990, 600_000],
      ['bytes=-5', 599_995, 600_000],
    ] as const) {
      const reply = await get(alice, `/files/${fileId}`, { range });
      expect(reply.status).toBe(206);
      expect(reply.headers.get('content-range')).toBe(`bytes ${start}-${end - 1}/600000`);
      expect(Buffer.from(await reply.arrayBuffer()).equals(bytes.subarray(start, end))).toBe(true);
    }
    const head = await get(alice, `/files/${fileId}`, { range: 'bytes=0-9' }, 'HEAD');
    expect([head.status, head.headers.get('content-length')]).toEqual([206, '10']);
    const beyond = await get(alice, `/files/${fileId}`, { range: 'bytes=600000-' });
    expect([beyond.status, beyond.headers.get('content-range')]).toEqual([416, 'bytes */600000']);
    expect(await beyond.json()).toMatchObject({ code: 'range_not_satisfiable' });
    const changed = await get(alice, `/files/${fileId}`, { range: 'bytes=0-9', 'if-range': '"x"' });
    expect([changed.status, (await changed.arrayBuffer()).byteLength]).toEqual([200, 600_000]);
  });

  it('POST /files accepts a form, and refuses one without a file or without its end', async () => {
    const form = new FormData();
    form.set('note', 'ignored');
    form.set('file', new Blob(['# Title\n\nSome words']), '../../etc/notes.md');
    const { status, body } = await postFile(alice, undefined, form);
    expect(status).toBe(200);
    expect(body).toMatchObject({ name: 'notes.md', mediaType: 'text/markdown', size: 19 });
    const empty = new FormData();
    empty.set('note', 'no file');
    const refused = await postFile(alice, undefined, empty);
    expect(refused).toMatchObject({ status: 400, body: { code: 'invalid_upload' } });
    const truncated = await fetch(`${host.url}/files`, {
      method: 'POST',
      headers: { ...alice.headers, 'content-type': 'multipart/form-data; boundary=b' },
      body: '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhalf of',
    });
    expect([truncated.status, await truncated.json()]).toMatchObject([
      400,
      { code: 'invalid_upload' },
    ]);
    const { body: page } = await alice.request('GET', '/files?limit=100');
    expect(page.files.map(({ name }: { name: string }) => name)).not.toContain('a.txt');
  });

  it('POST /files takes a JSON file as a file with any Content-Type', async () => {
    const reply = await fetch(`${host.url}/files?name=data.json`, {
      method: 'POST',
      headers: { ...alice.headers, 'content-type': 'application/json' },
      body: '{"not": "parsed"',
    });
    expect(await reply.json()).toMatchObject({ mediaType: 'application/json', size: 16 });
  });

  it('POST /files stores the same bytes once for each user', async () => {
    const user = new TestUser(host);
    const bytes = randomBytes(300_000);
    const [first, ...others] = await Promise.all([
      upload(user, 'a.bin', bytes),
      upload(user, 'b.bin', bytes),
      upload(user, 'c.bin', bytes),
    ]);
    expect(new Set(others.map(({ fileId }) => fileId))).toEqual(new Set([first?.fileId]));
    const { body } = await user.request('GET', '/files');
    expect(body).toMatchObject({ total: 1, usedBytes: 300_000, maxBytes: 6 * 1024 ** 2 });
    const other = await upload(bob, 'a.bin', bytes);
    expect(other.fileId).not.toBe(first?.fileId);
  });

  it('POST /files enforces FILE_LIMIT with and without a declared length', async () => {
    const user = new TestUser(host);
    const big = Buffer.alloc(3 * 1024 ** 2 + 1, 'x');
    const declared = await postFile(user, 'big.txt', big);
    expect(declared).toMatchObject({ status: 413, body: { code: 'file_too_large' } });
    const streamed = await postFile(user, 'big.txt', new Blob([big]).stream());
    expect(streamed).toMatchObject({ status: 413, body: { code: 'file_too_large' } });
    const form = new FormData();
    form.set('file', new Blob([big]), 'big.txt');
    expect(await postFile(user, undefined, form)).toMatchObject({ status: 413 });
    expect((await user.request('GET', '/files')).body).toMatchObject({ total: 0, usedBytes: 0 });
  });

  it('POST /files enforces FILES_PER_USER with concurrent uploads of unknown length', async () => {
    const user = new TestUser(host);
    const send = () =>
      postFile(user, 'part.bin', new Blob([randomBytes(2.5 * 1024 ** 2)]).stream());
    const replies = await Promise.all([send(), send(), send(), send()]);
    const stored = replies.filter(({ status }) => status === 200);
    expect(stored.length).toBeLessThanOrEqual(2);
    for (const { status, body } of replies)
      if (status !== 200) expect([status, body.code]).toEqual([413, 'file_space_exhausted']);
    const { body } = await user.request('GET', '/files');
    expect(body.total).toBe(stored.length);
    expect(body.usedBytes).toBeLessThanOrEqual(6 * 1024 ** 2);
    // What was refused does not count.
    for (const { body: file } of stored) await user.request('DELETE', `/files/${file.fileId}`);
    expect((await postFile(user, 'again.bin', randomBytes(2.5 * 1024 ** 2))).status).toBe(200);
  });

  it('POST /files fills the space of a user completely, also with a file of unknown length', async () => {
    const user = new TestUser(host);
    for (const size of [2.5, 2]) await upload(user, 'a.bin', randomBytes(size * 1024 ** 2));
    const rest = new Blob([randomBytes(1.5 * 1024 ** 2)]);
    expect(await postFile(user, 'rest.bin', rest.stream())).toMatchObject({ status: 200 });
  });

  it('POST /files limits the uploads of one user and of one address at the same time', async () => {
    const open = (user: TestUser) => {
      const sending = request(`${host.url}/files?name=open.txt`, {
        method: 'POST',
        headers: user.headers,
      });
      sending.write('a file ');
      const reply = once(sending, 'response').then(([response]) => response as IncomingMessage);
      return { sending, reply };
    };
    const user = new TestUser(host);
    const own = Array.from({ length: 5 }, () => open(user));
    // None of the others is answered before it is complete.
    const refused = await Promise.race(own.map(({ reply }) => reply));
    expect(refused.statusCode).toBe(429);
    expect(await json(refused)).toMatchObject({ code: 'too_many_uploads' });
    const others = Array.from({ length: 13 }, () => open(new TestUser(host)));
    const last = await Promise.race(others.map(({ reply }) => reply));
    expect(await json(last)).toMatchObject({ code: 'address_busy' });
    const all = [...own, ...others];
    for (const { sending } of all) sending.end();
    const statuses = await Promise.all(all.map(async ({ reply }) => (await reply).statusCode));
    expect(statuses.filter((status) => status === 200)).toHaveLength(16);
  });

  it('a file id of another user behaves like an unknown one on every route', async () => {
    const file = await uploadText(alice, 'secret.txt', 'the secret word is xylophone');
    const { sessionId } = (await bob.request('POST', '/sessions')).body;
    const ask = async (fileId: string) => {
      const shown = async (method: string, path: string, body?: unknown) => {
        const { status, body: reply } = await bob.request(method, path, { body });
        return { status, ...reply, requestId: undefined };
      };
      return [
        await shown('GET', `/files/${fileId}`),
        await shown('GET', `/files/${fileId}/info`),
        await shown('DELETE', `/files/${fileId}`),
        await shown('POST', `/messages/${sessionId}`, { message: 'hi', attachments: [{ fileId }] }),
      ];
    };
    const foreign = await ask(file.fileId);
    expect(foreign).toEqual(await ask('00000000-0000-7000-8000-000000000000'));
    expect(foreign.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
    expect((await get(bob, `/files/${file.fileId}`, {}, 'HEAD')).status).toBe(404);
    expect((await get(alice, `/files/${file.fileId}`)).status).toBe(200);
  });

  it('GET /files/:fileId never sends a type that a browser executes', async () => {
    const script = '<html><script>alert(1)</script></html>';
    const hostile = {
      'page.html': script,
      'page.txt': script,
      'image.svg': '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
      'picture.png': script,
      'x.xhtml': `<?xml version="1.0"?>${script}`,
    };
    for (const [name, content] of Object.entries(hostile)) {
      const { fileId } = await upload(alice, name, `${content}<!-- ${name} -->`);
      const reply = await get(alice, `/files/${fileId}`);
      expect(reply.headers.get('content-type')).toBe('application/octet-stream');
      expect(reply.headers.get('content-disposition')).toMatch(/^attachment;/);
    }
  });

  it('POST /files takes hostile names', async () => {
    const names = {
      '../../../etc/passwd': 'passwd',
      'C:\\Windows\\system32\\a.dll': 'a.dll',
      'a\r\nSet-Cookie: x=1.txt': 'aSet-Cookie: x=1.txt',
      'invoice\u202Efdp.exe': 'invoicefdp.exe',
      '\u0000': 'file',
      '..': 'file',
      [`${'x'.repeat(900)}.pdf`]: `${'x'.repeat(196)}.pdf`,
      'né 😀 "quoted".txt': 'né 😀 "quoted".txt',
    };
    for (const [sent, kept] of Object.entries(names)) {
      const { fileId, name } = await upload(alice, sent, `named ${sent}`);
      expect(name).toBe(kept);
      const { headers } = await get(alice, `/files/${fileId}`, {}, 'HEAD');
      const [, encoded] =
        /filename\*=UTF-8''(\S+)/.exec(headers.get('content-disposition') ?? '') ?? [];
      if (encoded) expect(decodeURIComponent(encoded)).toBe(kept);
      else expect(headers.get('content-disposition')).toContain(`filename=`);
    }
  });

  it('reads the text of PDF, DOCX, XLSX, HTML, Markdown, CSV and code', async () => {
    const user = new TestUser(host);
    const texts = {
      'a.pdf': [createPdf(['first page', 'second page']), { unit: 'page', count: 2 }],
      'a.docx': [createDocx(['one paragraph', 'and another']), { unit: 'paragraph' }],
      'a.xlsx': [
        createXlsx({
          Budget: [
            ['item', 'cost'],
            ['tea', '5'],
          ],
          Notes: [['x']],
        }),
        { unit: 'sheet', count: 2 },
      ],
      'a.html': ['<html><style>p{}</style><p>Hello <b>there</b></p></html>', { unit: 'line' }],
      'a.md': ['# Title\n\ntext', { unit: 'line' }],
      'a.csv': ['a,b\n1,2\n', { unit: 'line' }],
      'a.py': ['def f():\n    return 1\n', { unit: 'line' }],
      'utf16.txt': [Buffer.from('\uFEFFwide words', 'utf16le'), { unit: 'line' }],
    } as const;
    for (const [name, [content, text]] of Object.entries(texts)) {
      const file = await uploadText(user, name, content);
      expect([name, file.text]).toMatchObject([
        name,
        { status: 'ready', isComplete: true, ...text },
      ]);
    }
    const broken = await uploadText(user, 'broken.pdf', '%PDF-1.7\nnothing else');
    expect(broken.text).toMatchObject({ status: 'failed', error: expect.any(String) });
  });

  it('GET /me/export contains the files as a whole', async () => {
    const user = new TestUser(host);
    const bytes = randomBytes(400_000);
    const { fileId } = await upload(user, 'photo.bin', bytes);
    const reply = await get(user, '/me/export');
    const entries = unzipSync(new Uint8Array(await reply.arrayBuffer()));
    expect(Buffer.from(entries[`uploads/${fileId}/photo.bin`] ?? [])).toEqual(bytes);
  });

  it('DELETE /files/:fileId removes bytes, text and index; deleting a session keeps its files', async () => {
    const user = new TestUser(host);
    const file = await uploadText(user, 'keep.txt', 'words to keep');
    const { sessionId } = (await user.request('POST', '/sessions')).body;
    const sent = { message: 'see this', attachments: [{ fileId: file.fileId }] };
    expect((await user.request('POST', `/messages/${sessionId}`, { body: sent })).status).toBe(200);
    await user.request('DELETE', `/sessions/${sessionId}`);
    expect((await get(user, `/files/${file.fileId}`)).status).toBe(200);
    expect(await user.request('DELETE', `/files/${file.fileId}`)).toMatchObject({ status: 200 });
    expect((await get(user, `/files/${file.fileId}`)).status).toBe(404);
    // The same bytes are a new file.
    const again = await upload(user, 'keep.txt', 'words to keep');
    expect(again.fileId).not.toBe(file.fileId);
    expect(await waitForText(user, again)).toMatchObject({ status: 'ready' });
  });
});
