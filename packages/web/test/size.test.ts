import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { ensureBuilt } from '../../../scripts/build.ts';

ensureBuilt();

const DIST = join(import.meta.dirname, '../dist');
const MAX_BYTES = 121_000;

const read = (file: string) => readFileSync(join(DIST, file));

it(`the first load of the page is at most ${MAX_BYTES} bytes, compressed`, () => {
  const html = read('index.html').toString();
  const files = [...html.matchAll(/(?:src|href)="\.\/([^"]+\.(?:js|css))"/g)].map(
    ([, file = '']) => file,
  );
  expect(files.length).toBeGreaterThan(1);
  const bytes = ['index.html', ...files].map((file) => gzipSync(read(file)).length);
  expect(bytes.reduce((sum, each) => sum + each)).toBeLessThanOrEqual(MAX_BYTES);
});
