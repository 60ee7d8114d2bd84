import { expect, it } from 'vitest';
import { toCsv } from './elements.js';

it('toCsv quotes separators, quotes and line breaks', () => {
  expect(
    toCsv([
      ['a', 'b,c'],
      ['say "hi"', 'x\ny'],
    ]),
  ).toBe('a,"b,c"\r\n"say ""hi""","x\ny"');
});

it('toCsv defuses cells that a spreadsheet would run, and keeps numbers', () => {
  expect(toCsv([['=1+1', '@x', '+cmd|x', '-29 %', '+5', '-1,5']])).toBe(
    `'=1+1,'@x,'+cmd|x,-29 %,+5,"-1,5"`,
  );
});
