import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { detectType } from './detect-type.js';

/** A zip entry whose size follows its data. */
function openEntry(name: string): Buffer {
  const entry = Buffer.alloc(30 + name.length);
  entry.write('PK\u0003\u0004', 'latin1');
  entry.writeUInt16LE(8, 6);
  entry.writeUInt16LE(8, 8);
  entry.writeUInt16LE(name.length, 26);
  entry.write(name, 30);
  return entry;
}

const endless = Buffer.concat([openEntry('mimetype'), Buffer.alloc(1024 ** 2)]);

it.each([
  ['a long zip entry', endless, 'application/zip'],
  ['one inside of a gzip file', gzipSync(endless), 'application/gzip'],
])('detectType does not search %s for its end', async (_, bytes, type) => {
  await detectType(endless.subarray(0, 1024), 'short.zip');
  const before = process.threadCpuUsage();
  for (let n = 0; n < 10; n += 1) expect(await detectType(bytes, 'a.zip')).toBe(type);
  const { user, system } = process.threadCpuUsage(before);
  expect((user + system) / 1000).toBeLessThan(250);
});
