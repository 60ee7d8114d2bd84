import { expect, it } from 'vitest';
import { z } from 'zod';
import { HttpUrl, hasShortHost, Id, wholeNumber } from './identifiers.js';

const Query = z.strictObject({ limit: wholeNumber({ min: 1, max: 100 }).default(20) });

it.each(['a', '7f.b:c_d-e', '.a', '..a', 'a..'])('Id accepts %j', (id) => {
  expect(Id.safeParse(id).success).toBe(true);
});

it.each(['', '.', '..', 'a/b', 'a b', 'ä', 'a'.repeat(129)])(
  'Id refuses %j, which cannot be a segment of a path',
  (id) => {
    expect(Id.safeParse(id).success).toBe(false);
  },
);

const letters = (count: number) =>
  String.fromCodePoint(...Array.from({ length: count }, (_, i) => 0x4e00 + i));

it.each([
  'https://example.com/a?b#c',
  'http://127.0.0.1:8080',
  `https://${letters(60)}.example/${letters(1500)}`,
])('HttpUrl accepts %j', (url) => {
  expect(HttpUrl.parse(url)).toBe(url);
});

it.each(['', 'example.com', 'ftp://example.com', `https://example.com/${'a'.repeat(2048)}`])(
  'HttpUrl refuses %j',
  (url) => {
    expect(HttpUrl.safeParse(url).success).toBe(false);
  },
);

it('HttpUrl does not parse a URL that is too long, or whose host is', () => {
  const errors = [`https://${letters(5000)}`, `https://${letters(1500)}`].map((url) =>
    HttpUrl.safeParse(url).error?.issues.map(({ message }) => message),
  );
  expect(errors).toEqual([
    ['Too big: expected string to have <=2048 characters'],
    ['must have a host of at most 512 characters'],
  ]);
});

it('HttpUrl is a string with the format uri in a JSON schema', () => {
  expect(z.toJSONSchema(HttpUrl)).toMatchObject({
    type: 'string',
    format: 'uri',
    maxLength: 2048,
  });
});

it.each(['https://', ' \0HTTPS:\\', 'ht\ntps:/\t/', 'ws:', 'file://'])(
  'hasShortHost finds the host behind %j',
  (start) => {
    expect(hasShortHost(`${start}${'a'.repeat(512)}/${'a'.repeat(600)}`)).toBe(true);
    expect(hasShortHost(`${start}${'a'.repeat(513)}`)).toBe(false);
  },
);

it.each([`did:key:${'z'.repeat(600)}`, `urn:x:${'a'.repeat(600)}`, 'a'.repeat(600), ''])(
  'hasShortHost accepts what has no host: %j',
  (url) => {
    expect(hasShortHost(url)).toBe(true);
  },
);

it.each(['1', '100', '007'])('wholeNumber reads decimal digits: %j', (limit) => {
  expect(Query.parse({ limit })).toEqual({ limit: Number(limit) });
});

it('wholeNumber leaves a default to absent values', () => {
  expect(Query.parse({})).toEqual({ limit: 20 });
});

it.each([
  '0',
  '-1',
  '101',
  '0x5',
  '1e1',
  ' 5',
  '5 ',
  '+5',
  '',
  '1.0',
  '٣',
  'NaN',
  '1'.repeat(17),
  ['5'],
  null,
  true,
])('wholeNumber refuses %j and names the range', (limit) => {
  const { error } = Query.safeParse({ limit });
  expect(error?.issues).toMatchObject([
    { path: ['limit'], message: 'must be a whole number from 1 to 100' },
  ]);
});

it('wholeNumber is an integer with its range and default in JSON Schema', () => {
  expect(z.toJSONSchema(Query, { io: 'input' }).properties).toEqual({
    limit: { type: 'integer', minimum: 1, maximum: 100, default: 20 },
  });
});
