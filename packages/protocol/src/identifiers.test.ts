import { expect, it } from 'vitest';
import { z } from 'zod';
import { Id, wholeNumber } from './identifiers.js';

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
