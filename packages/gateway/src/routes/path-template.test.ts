import { describe, expect, it } from 'vitest';
import { PathTemplate } from './path-template.js';

describe('a path template', () => {
  it('has texts, variables and wildcards', () => {
    const template = new PathTemplate('/a/{b.c}/d/{e=**}/f');
    expect(template.steps).toEqual([{ text: 'a' }, 'one', { text: 'd' }, 'many', { text: 'f' }]);
    expect(template.variables).toEqual(['b.c', 'e']);
  });

  it.each([
    ['/denoms/{denom=**}/total', ['denoms', 'ibc', 'ABC', 'total'], { denom: 'ibc/ABC' }],
    ['/denoms/{denom=**}/total', ['denoms', 'total'], { denom: '' }],
    ['/denoms/{denom=**}/of/{id}', ['denoms', 'a', 'b', 'of', '7'], { denom: 'a/b', id: '7' }],
    [
      '/{name=shelves/*/books/*}/x',
      ['shelves', '1', 'books', '2', 'x'],
      { name: 'shelves/1/books/2' },
    ],
    ['/a/{id}', ['a', 'x/y'], { id: 'x/y' }],
  ])('%s reads %j', (text, segments, params) => {
    expect(Object.fromEntries(new PathTemplate(text).read(segments))).toEqual(params);
  });

  it('is filled with values, which keep their colons and are escaped otherwise', () => {
    const params = new Map([
      ['id', 'did:ixo:a b/c'],
      ['deep', 'x/y z'],
    ]);
    expect(new PathTemplate('/a/{id}/{deep=**}').fill(params)).toBe('/a/did:ixo:a%20b%2Fc/x/y%20z');
  });

  it.each([
    ['a/b', 'does not start with a slash'],
    ['/a/{b', 'invalid part'],
    ['/a/b:verb', 'invalid part'],
    ['/{a=**}/{b=**}', 'more than one **'],
    ['/a*', 'invalid part'],
    ['/', 'invalid part'],
  ])('PathTemplate rejects %s', (text, reason) => {
    expect(() => new PathTemplate(text)).toThrow(reason);
  });
});
