import type { FileInfo } from '@sibyl/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { importArchive } from './support/archives.js';
import { call, filterFrames, ask as playTurn, say, useTool } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { createPdf, createXlsx } from './support/documents.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { upload, uploadText } from './support/upload.js';
import { TestUser } from './support/user.js';

const PAGES = 900;
const SECRET = 'The vault of the Zephyr archive opens with the word marmalade.';

describe.each(engines)('answers from files on %s', (engine) => {
  let database: TestDatabase;
  let host: TestHost;
  let alice: TestUser;
  let bob: TestUser;
  let fileId: string;
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    host = await startHost({ env: { ...database.env, MODEL: 'offline' } });
    [alice, bob] = [new TestUser(host), new TestUser(host)];
    const pages = Array.from({ length: PAGES }, (_, i) =>
      i === 699 ? SECRET : `Page ${i + 1} is about the archive, its vault and its harvest of ${i}.`,
    );
    const file = await uploadText(alice, 'chronicle.pdf', createPdf(pages));
    expect(file.text).toMatchObject({ status: 'ready', unit: 'page', count: PAGES });
    fileId = file.fileId;
  });
  afterAll(async () => {
    await host?.close();
    await database?.drop();
  });

  async function ask(user: TestUser, message: string, attachments?: object[]) {
    const { sessionId } = (await user.request('POST', '/sessions')).body;
    const body = { message, ...(attachments && { attachments }) };
    const reply = await user.request('POST', `/messages/${sessionId}`, { body });
    expect(reply.status).toBe(200);
    const { messages } = (await user.request('GET', `/messages/${sessionId}`)).body;
    const citations = messages
      .at(-1)
      .parts?.flatMap((part: { type: string; citation?: object }) => part.citation ?? []);
    return { text: reply.body.message.content as string, citations, question: messages[0] };
  }

  it('the offline model answers from page 700 of a PDF, and its message cites the page', async () => {
    const { text, citations } = await ask(alice, 'What opens the vault of Zephyr in my files?');
    expect(text).toContain('marmalade');
    expect(citations).toEqual([
      { title: 'chronicle.pdf', fileId, position: 'page 700', quote: SECRET, marker: '[1]' },
    ]);
  });

  it('a question about page 700 of an attached file reads that page', async () => {
    const { text, citations, question } = await ask(alice, 'What does page 700 say?', [{ fileId }]);
    expect(text).toContain('marmalade');
    expect(citations).toMatchObject([{ fileId, position: 'page 700' }]);
    expect(question.attachments).toMatchObject([
      { fileId, filename: 'chronicle.pdf', mimetype: 'application/pdf' },
    ]);
  });

  it('another user finds nothing of it', async () => {
    await uploadText(bob, 'own.txt', 'another text');
    const { text, citations } = await ask(bob, 'What opens the vault of Zephyr in my files?');
    expect(text).not.toContain('marmalade');
    expect(citations ?? []).toEqual([]);
  });
});

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
/** As large as models accept. */
const LARGE_IMAGE = Buffer.concat([PNG], 8 * 1024 ** 2);

describe('tools and attachments of files', () => {
  const host = useControlledHost({
    env: { MODEL_SETTINGS: '{"openai-compatible/*": {"vision": true}}' },
  });

  it('search_files and read_file treat the file of another user as unknown', async () => {
    const { alice, model } = host;
    const bob = new TestUser(alice.host);
    const foreign = await uploadText(alice, 'secret.txt', 'the password is xylophone');
    await uploadText(bob, 'own.txt', 'nothing here');
    for (const tool of ['read_file', 'search_files']) {
      const input = (fileId: string) => ({
        fileId,
        ...(tool === 'search_files' && { query: 'password' }),
      });
      const hers = await useTool({ user: bob, model }, tool, input(foreign.fileId));
      const unknown = await useTool({ user: bob, model }, tool, input('no-such-file'));
      expect(hers.status).toBe('error');
      expect(JSON.stringify(hers.output).replace(foreign.fileId, '?')).toBe(
        JSON.stringify(unknown.output).replace('no-such-file', '?'),
      );
    }
    const found = await useTool({ user: bob, model }, 'search_files', {
      query: 'password xylophone',
    });
    expect(found.output).toMatchObject({ passages: [], files: [{ name: 'own.txt' }] });
  });

  it('read_file reads a long sheet, page or line to its end, and a text from any line on', async () => {
    const { alice, model } = host;
    const read = async (input: object) =>
      (await useTool({ user: alice, model }, 'read_file', input)).output;
    const rows = Array.from({ length: 400 }, (_, i) => [`row ${i} `.repeat(10)]);
    const sheet = await uploadText(
      alice,
      'long.xlsx',
      createXlsx({ Long: rows, Short: [['end']] }),
    );
    const texts: string[] = [];
    for (let next: object | undefined = {}; next; ) {
      const output = await read({ fileId: sheet.fileId, ...next });
      texts.push(...output.passages.map(({ text }: { text: string }) => text));
      expect(texts.length).toBeLessThan(100);
      next = output.next && { position: output.next, ...(output.skip && { skip: output.skip }) };
    }
    const found = texts.join('\n').match(/^row \d+/gm);
    expect(found).toEqual(rows.map((_, i) => `row ${i}`));
    expect(texts.at(-1)).toBe('end');
    const lines = Array.from({ length: 200 }, (_, i) => `This is line ${i + 1} of a text.\n`);
    const { fileId, text } = await uploadText(alice, 'lines.txt', lines.join(''));
    expect(text).toMatchObject({ unit: 'line', count: 200 });
    for (const line of [1, 2, 77, 120, 200]) {
      const { passages } = await read({ fileId, position: line });
      expect(passages[0].text).toContain(`line ${line} of`);
    }
  });

  it('a short file is part of its message, and a citation is streamed and stored', async () => {
    const { alice } = host;
    const { fileId } = await uploadText(alice, 'notes.md', 'The harvest was 42 tons.');
    const turn = await playTurn(
      host,
      [call(['search_files', { query: 'harvest', fileId }]), say('It was 42 tons [1].')],
      { message: 'How much?', attachments: [{ fileId }] },
    );
    expect(JSON.stringify(turn.turns[0]?.body.messages)).toContain('The harvest was 42 tons.');
    expect(filterFrames(turn, 'citation')).toMatchObject([
      { citation: { title: 'notes.md', fileId, position: 'line 1', marker: '[1]' } },
    ]);
    const { body } = await alice.request('GET', `/messages/${turn.sessionId}`);
    const types = body.messages.at(-1).parts.map(({ type }: { type: string }) => type);
    expect(types).toEqual(['tool-call', 'text', 'citation']);
  });

  it('a copy of a conversation, and one that is imported, cite the passages that they have cited before', async () => {
    const { model } = host;
    const alice = new TestUser(host.host);
    const [harvest, frost] = [
      await uploadText(alice, 'harvest.md', 'The harvest was 42 tons.'),
      await uploadText(alice, 'frost.md', 'The frost came in May.'),
    ];
    const search = (query: string) => call(['search_files', { query }]);
    const first = await playTurn({ alice, model }, [search('harvest'), say('42 tons [1].')]);
    const { messages } = (await alice.request('GET', `/messages/${first.sessionId}`)).body;
    const messageId = messages.at(-1).id;
    const fork = { body: { messageId } };
    const { sessionId } = (await alice.request('POST', `/sessions/${first.sessionId}/fork`, fork))
      .body;
    const exported = await fetch(`${alice.host.url}/me/export`, { headers: alice.headers });
    const archive = Buffer.from(await exported.arrayBuffer());
    const elsewhere = await startHost({ env: model.env });
    try {
      const there = alice.at(elsewhere);
      expect(await importArchive(there, archive)).toMatchObject({ refused: 0 });
      const list = async (): Promise<FileInfo[]> =>
        (await there.request('GET', '/files')).body.files;
      const readTexts = async () => (await list()).map(({ text }) => text.status);
      await expect.poll(readTexts, { timeout: 60_000 }).toEqual(['ready', 'ready']);
      const files = await list();
      const ids = new Map(files.map(({ name, fileId }) => [name, fileId]));
      const moved = { harvest: ids.get('harvest.md'), frost: ids.get('frost.md') };
      const own = { harvest: harvest.fileId, frost: frost.fileId };
      for (const [user, expected] of [[alice, own] as const, [there, moved] as const]) {
        const plays = [search('frost'), say('42 tons [1], and frost in May [2].')];
        const next = await playTurn({ alice: user, model }, plays, { sessionId });
        expect(filterFrames(next, 'citation')).toMatchObject([
          { citation: { title: 'harvest.md', fileId: expected.harvest, marker: '[1]' } },
          { citation: { title: 'frost.md', fileId: expected.frost, marker: '[2]' } },
        ]);
      }
    } finally {
      await elsewhere.close();
    }
  });

  it('offers no file tools to users without files', async () => {
    const carol = new TestUser(host.alice.host);
    const { turns } = await playTurn({ alice: carol, model: host.model }, [say()]);
    expect(turns[0]?.tools).not.toContain('search_files');
  });

  it('an image is shown to a model that sees', async () => {
    const { alice } = host;
    const { fileId, mediaType } = await upload(alice, 'dot.png', PNG);
    expect(mediaType).toBe('image/png');
    const { turns } = await playTurn(host, [say()], { attachments: [{ fileId }] });
    const sent = JSON.stringify(turns[0]?.body.messages.at(-1));
    expect(sent).toContain(`data:image/png;base64,${PNG.toString('base64')}`);
  });

  it('images of all calls of a user together have a limit, beyond which the model and the user learn why they are missing', async () => {
    const { alice, model } = host;
    const { fileId } = await upload(alice, 'large.png', LARGE_IMAGE);
    const attachments = Array.from({ length: 8 }, () => ({ fileId }));
    const first = await stream(alice, await openSession(alice), { message: 'look', attachments });
    const held = await model.next();
    const second = await playTurn(host, [say()], { attachments });
    const shown = second.turns[0]?.body.messages.at(-1).content;
    expect(shown.filter(({ type }: { type: string }) => type === 'image_url')).toHaveLength(4);
    const missing = shown.filter(({ text }: { text?: string }) =>
      text?.includes('too many images'),
    );
    expect(missing).toHaveLength(4);
    const codes = filterFrames(second, 'warning').map(({ code }) => code);
    expect(codes).toEqual(Array(4).fill('attachment_unreadable'));
    held.answer('seen');
    await first.toEnd();
    const third = await playTurn(host, [say()], { attachments: attachments.slice(0, 5) });
    expect(JSON.stringify(third.turns[0]?.body.messages)).not.toContain('too many images');
  }, 120_000);

  it('images that read_file has shown are held until the end of the turn', async () => {
    const { alice, model } = host;
    const { fileId } = await upload(alice, 'large.png', LARGE_IMAGE);
    const read = ['read_file', { fileId }] as const;
    const { frames } = await playTurn(host, [
      call(...Array.from({ length: 13 }, (_, i) => ['read_file', { fileId, skip: i }] as const)),
      say(),
    ]);
    const ended = filterFrames({ frames }, 'tool_call').filter(({ status }) => status === 'error');
    expect(ended).toMatchObject([{ output: expect.stringContaining('too many images') }]);
    const again = await useTool({ user: alice, model }, ...read);
    expect(again.status).toBe('done');
  }, 120_000);
});
