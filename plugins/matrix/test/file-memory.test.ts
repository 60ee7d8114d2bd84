import type { TurnContext } from '@sibyl/plugin-kit';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { usedMemory } from '../../../packages/host/test/support/used-memory.js';
import { FileReader, type ReadFile } from '../src/file-reader.js';
import { HomeserverHealth } from '../src/health.js';
import type { MatrixConfig } from '../src/homeserver.js';
import { startHomeserver, type TestHomeserver } from './support/homeserver.js';

const MB = 1024 ** 2;
let home: TestHomeserver;

beforeAll(async () => {
  home = await startHomeserver();
  home.users.set('token', '@alice:test');
  const image = Buffer.alloc(24 * MB);
  image.write('\x89PNG\r\n\x1a\n', 'latin1');
  home.media.set('image', { bytes: image });
  home.media.set('small', { bytes: Buffer.from('Twenty-three characters.') });
  home.media.set('text', { bytes: Buffer.alloc(24 * MB, 'x') });
});

afterAll(() => home.close());

function createReader() {
  const fetch = createSafeFetch({ allow: ['127.0.0.1'] });
  const config = {
    MATRIX_BASE_URL: home.url,
    MATRIX_ACCESS_TOKEN: undefined,
    MATRIX_CHAT: false,
    MATRIX_CHAT_ALLOW: undefined,
  };
  const reader = new FileReader({ health: new HomeserverHealth(fetch), config });
  /** Reads the files of one turn; `end` is its end. */
  const read = async (user: string, name: 'image' | 'text' | 'small', type: string) => {
    const ending = new AbortController();
    const attachment = { mxcUri: `mxc://test/${name}`, filename: name, mimetype: type };
    const turn = {
      user: { did: user, matrix: { accessToken: 'token' } },
      request: { attachments: [attachment, attachment] },
      signal: ending.signal,
      state: { metadata: {} },
      session: { client: 'page' },
      shared: { get: () => undefined },
      logger: { info() {}, warn() {}, error() {} },
    } as unknown as TurnContext<MatrixConfig>;
    return { files: await reader.read(turn, undefined), end: () => ending.abort() };
  };
  return { reader, read };
}

const listErrors = (files: readonly ReadFile[]) =>
  files.flatMap((file) => ('error' in file ? file.error : []));

describe('FileReader', () => {
  it('holds 100 MB of images for a user and 256 MB for all, until their turns are over', async () => {
    const { reader, read } = createReader();
    const turns = [];
    for (const user of ['alice', 'alice', 'bob', 'bob', 'carol']) {
      turns.push(await read(user, 'image', 'image/png'));
    }
    expect(turns.flatMap(({ files }) => listErrors(files))).toEqual([]);
    expect(reader.budget.used).toBe(10 * 24 * MB);
    const refused = await read('alice', 'image', 'image/png');
    expect(listErrors(refused.files)).toHaveLength(2);
    expect(listErrors(refused.files)[0]).toContain('too many files');
    expect(listErrors((await read('dave', 'image', 'image/png')).files)).toHaveLength(2);
    expect(reader.budget.used).toBe(10 * 24 * MB);
    turns[0]?.end();
    expect(reader.budget.used).toBe(8 * 24 * MB);
    expect(listErrors((await read('dave', 'image', 'image/png')).files)).toEqual([]);
    for (const { end } of turns) end();
    expect(reader.budget.used).toBe(2 * 24 * MB);
  });

  it('reads 200 MB a minute for a user, and charges a file before it reads it', async () => {
    const { read } = createReader();
    const readErrors = async (user: string) => {
      const { files, end } = await read(user, 'text', 'text/plain');
      end();
      return listErrors(files);
    };
    for (let i = 0; i < 4; i++) expect(await readErrors('alice')).toEqual([]);
    expect((await readErrors('alice'))[0]).toMatch(/200 MB of files a minute/);
    expect(await readErrors('bob')).toEqual([]);
  });

  it('charges a file whose size the homeserver does not announce for what was read', async () => {
    home.behavior.hidesSizes = true;
    const { read } = createReader();
    for (let i = 0; i < 5; i++) {
      const { files, end } = await read('alice', 'small', 'text/plain');
      end();
      expect(listErrors(files)).toEqual([]);
    }
    home.behavior.hidesSizes = false;
  });

  it('keeps of a long text only what the model is shown', async () => {
    const { reader, read } = createReader();
    const kept = [];
    await read('alice', 'text', 'text/plain').then(({ end }) => end());
    const before = usedMemory();
    for (let i = 0; i < 10; i++) kept.push(await read(`user ${i}`, 'text', 'text/plain'));
    // Of 20 files of 24 MB; buffers of the last transfers may take a moment to go.
    await expect.poll(() => usedMemory() - before, { timeout: 20_000 }).toBeLessThan(48);
    expect(reader.budget.used).toBeLessThan(20 * 130_000);
    expect(kept.flatMap(({ files }) => listErrors(files))).toEqual([]);
    expect(JSON.stringify(kept[0]?.files)).toContain('more bytes]');
  });
});
