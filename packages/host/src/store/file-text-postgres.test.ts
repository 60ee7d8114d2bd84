import type { CompiledQuery } from 'kysely';
import { expect, it } from 'vitest';
import { openRecordedPostgres } from '../../test/support/recorded-postgres.js';
import { FileTextStore } from './file-text-store.js';

/** Files on PostgreSQL without a server. */
function openTexts() {
  const row = { n: 0, place: 1, position: 'page 1', text: 'a zebra', fileId: 'f', file: 'a' };
  const { context, statements: sent } = openRecordedPostgres([row]);
  const texts = new FileTextStore(context, 'host');
  const search = async (owner: string, query: string, fileId?: string) => {
    const found = await texts.search({ owner, query, fileId, limit: 10 });
    const statements = sent.splice(0);
    const match = ({ parameters }: CompiledQuery) => String(parameters[1]).split(' & ');
    return { found, statements, matches: statements.map(match) };
  };
  return search;
}

it('FileTextStore.search on PostgreSQL looks for words of the text among those of the owner', async () => {
  const search = openTexts();
  const { found, statements, matches } = await search('did:a', 'Zebra lion');
  expect(found).toMatchObject([{ fileId: 'f', text: 'a zebra' }]);
  expect(statements[0]?.sql).toMatch(/p\.words @@ to_tsquery\('simple', \$2\)/);
  expect(statements.every(({ parameters }) => parameters[0] === 'did:a')).toBe(true);
  const [owner = ''] = matches[0] ?? [];
  expect(owner).toMatch(/^o[0-9a-f]{24}:A$/);
  expect(matches).toEqual([
    [owner, '(zebra:D | zebra:AD)', '(lion:D | lion:AD)'],
    [owner, '(zebra:D | zebra:AD)'],
    [owner, '(lion:D | lion:AD)'],
  ]);
});

it('FileTextStore.search on PostgreSQL keeps owners and files apart', async () => {
  const search = openTexts();
  const [all] = (await search('did:a', 'zebra')).matches;
  const [ofFile] = (await search('did:a', 'zebra', 'f1')).matches;
  const [ofOther] = (await search('did:b', 'zebra', 'f1')).matches;
  expect(ofFile).toEqual([
    all?.[0],
    expect.stringMatching(/^f[0-9a-f]{24}:A$/),
    '(zebra:D | zebra:AD)',
  ]);
  expect(ofOther?.[0]).not.toBe(ofFile?.[0]);
  expect(ofOther?.[1]).not.toBe(ofFile?.[1]);
});
