import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalJson, hashJson } from './decisions.js';

describe('canonicalJson', () => {
  // The example of RFC 8785, section 3.2.3: names are sorted by UTF-16 code units.
  it('sorts names as RFC 8785 does', () => {
    const names = {
      '\u20ac': 'Euro Sign',
      '\r': 'Carriage Return',
      '\ufb33': 'Hebrew Letter Dalet With Dagesh',
      '1': 'One',
      '\u{1F600}': 'Emoji: Grinning Face',
      '\u0080': 'Control',
      '\u00f6': 'Latin Small Letter O With Diaeresis',
    };
    const values = [...canonicalJson(names).matchAll(/:"([^"]+)"/g)].map(([, value]) => value);
    expect(values).toEqual([
      'Carriage Return',
      'One',
      'Control',
      'Latin Small Letter O With Diaeresis',
      'Euro Sign',
      'Emoji: Grinning Face',
      'Hebrew Letter Dalet With Dagesh',
    ]);
  });

  // Section 3.2.2 of the RFC.
  it('writes numbers, texts and literals as RFC 8785 does', () => {
    const value = {
      numbers: [Number('333333333.33333329'), 1e30, 4.5, 2e-3, 0.000000000000000000000000001],
      string: '\u20ac$\u000F\u000aA\'\u0042\u0022\u005c\\"/',
      literals: [null, true, false],
    };
    expect(canonicalJson(value)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    );
  });

  it('sorts names that look like numbers as texts', () => {
    expect(canonicalJson({ 9: 1, 10: 2, a: 3 })).toBe('{"10":2,"9":1,"a":3}');
  });

  it('leaves out what JSON.stringify leaves out', () => {
    const value = { a: undefined, b: () => 1, c: [undefined], d: new Date(0), e: -0 };
    expect(canonicalJson(value)).toBe('{"c":[null],"d":"1970-01-01T00:00:00.000Z","e":0}');
    expect(canonicalJson(undefined)).toBe('null');
  });

  it('parses to the same value, and is the same for any order of names', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = canonicalJson(value);
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(JSON.parse(text))).toBe(text);
      }),
    );
  });
});

describe('hashJson', () => {
  it('is the SHA-256 of the canonical text', async () => {
    // printf '{"a":1}' | sha256sum
    expect(await hashJson({ a: 1 })).toBe(
      '015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862',
    );
  });

  it('rejects half a surrogate pair, and nothing that looks like one', async () => {
    await expect(hashJson({ a: '\ud800' })).rejects.toThrow(TypeError);
    await expect(hashJson({ '\udc00': 1 })).rejects.toThrow(TypeError);
    await expect(hashJson({ a: '\\\ud800' })).rejects.toThrow(TypeError);
    await expect(hashJson({ a: '\\ud800', b: '\u{1F600}' })).resolves.toMatch(/^[0-9a-f]{64}$/);
  });
});
