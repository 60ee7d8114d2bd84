import { encode } from '@ipld/dag-cbor';
import { describe, expect, test } from 'vitest';
import { ucantoCases } from '../../test/support/ucanto-cases.js';
import { decodeCbor, encodeCbor } from './cbor.js';

const hex = (text: string): Uint8Array => Buffer.from(text.replaceAll(' ', ''), 'hex');

describe('canonical CBOR', () => {
  test.each(ucantoCases)('comes back as it went: $name', ({ fields }) => {
    const value = { att: fields.capabilities, fct: fields.facts ?? [] };
    const bytes = encode(value);
    const decoded = decodeCbor(bytes);
    expect(decoded.error).toBeUndefined();
    expect(Buffer.from(encodeCbor(decoded.ok as never))).toEqual(Buffer.from(bytes));
    expect(Buffer.from(encodeCbor(value as never))).toEqual(Buffer.from(bytes));
  });

  test.each([
    ['', 'truncated'],
    ['18', 'truncated'],
    ['42 00', 'truncated'],
    ['9a ff ff ff ff', 'truncated'],
    ['82 00', 'truncated'],
    ['a1 61 61', 'truncated'],
    ['fb 3f', 'truncated'],
    ['00 00', 'trailing bytes'],
    ['18 17', 'integer not in its shortest form'],
    ['19 00 ff', 'integer not in its shortest form'],
    ['1a 00 00 ff ff', 'integer not in its shortest form'],
    ['1b 00 00 00 00 ff ff ff ff', 'integer not in its shortest form'],
    ['38 17', 'integer not in its shortest form'],
    ['58 01 00', 'integer not in its shortest form'],
    ['1b 00 20 00 00 00 00 00 00', 'integer too large'],
    ['3b 00 1f ff ff ff ff ff ff', 'integer too large'],
    ['5b ff ff ff ff ff ff ff ff', 'integer too large'],
    ['1c', 'indefinite or reserved length'],
    ['1d', 'indefinite or reserved length'],
    ['5f 41 00 ff', 'indefinite or reserved length'],
    ['7f 61 61 ff', 'indefinite or reserved length'],
    ['9f ff', 'indefinite or reserved length'],
    ['bf ff', 'indefinite or reserved length'],
    ['ff', 'simple value not allowed'],
    ['f7', 'simple value not allowed'],
    ['f0', 'simple value not allowed'],
    ['f8 20', 'simple value not allowed'],
    ['f9 3e 00', 'simple value not allowed'],
    ['fa 3f c0 00 00', 'simple value not allowed'],
    ['fb 3f f0 00 00 00 00 00 00', 'float not allowed'],
    ['fb 80 00 00 00 00 00 00 00', 'float not allowed'],
    ['fb 7f f0 00 00 00 00 00 00', 'float not allowed'],
    ['fb 7f f8 00 00 00 00 00 00', 'float not allowed'],
    ['61 ff', 'not UTF-8'],
    ['63 ed a0 80', 'not UTF-8'],
    ['62 c0 80', 'not UTF-8'],
    ['64 ef bb bf 61', 'byte order mark'],
    ['a1 01 02', 'map key is not text'],
    ['a1 41 61 02', 'map key is not text'],
    ['a2 61 62 00 61 61 00', 'keys out of order'],
    ['a2 62 61 61 00 61 62 00', 'keys out of order'],
    ['a2 61 61 00 61 61 00', 'keys out of order'],
    ['a1 69 5f 5f 70 72 6f 74 6f 5f 5f 00', 'key not allowed'],
    ['a1 61 2f 00', 'key not allowed'],
    ['c0 60', 'tag not allowed'],
    ['d8 2b 41 00', 'tag not allowed'],
    ['d8 2a 60', 'link malformed'],
    ['d8 2a 40', 'link malformed'],
    ['d8 2a 41 01', 'link malformed'],
    ['d8 2a 41 00', 'link is not a CIDv1'],
    ['d8 2a 46 00 02 71 12 01 00', 'link is not a CIDv1'],
    ['d8 2a 46 00 01 71 12 02 00', 'link is not a CIDv1'],
    ['d8 2a 47 00 01 71 12 01 00 00', 'link is not a CIDv1'],
    ['d8 2a 48 00 01 f1 80 00 12 01 00', 'link is not a CIDv1'],
    [`${'81'.repeat(17)}00`, 'nested too deep'],
  ])('%s is refused: %s', (bytes, error) => {
    expect(decodeCbor(hex(bytes))).toEqual({ error });
  });

  test.each([
    '00',
    '17',
    '1818',
    '20',
    '1b001fffffffffffff',
    '3b001ffffffffffffe',
    'f4',
    'f6',
    '60',
  ])('%s is read and written the same', (bytes) => {
    const decoded = decodeCbor(hex(bytes));
    expect(decoded).toHaveProperty('ok');
    expect(Buffer.from(encodeCbor(decoded.ok as never)).toString('hex')).toBe(bytes);
  });

  test('a lie about the length of a map costs nothing', () => {
    const start = process.cpuUsage();
    expect(decodeCbor(hex('ba ff ff ff ff'))).toEqual({ error: 'truncated' });
    const { user, system } = process.cpuUsage(start);
    expect(user + system).toBeLessThan(500_000);
  });
});
