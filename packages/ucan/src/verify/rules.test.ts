import { expect, test } from 'vitest';
import { type IpldMap, Link } from '../codec/ipld.js';
import { covers, isCovered } from './rules.js';

const abilities: readonly [grant: string, claim: string, expected: boolean][] = [
  ['*', '*', true],
  ['*', 'a/b', true],
  ['*', 'a/*', true],
  ['a/*', '*', false],
  ['a/b', '*', false],
  ['a/b', 'a/b', true],
  ['a/b', 'a/c', false],
  ['a/b', 'a/b/c', false],
  ['a/*', 'a/b', true],
  ['a/*', 'a/*', true],
  ['a/*', 'a/b/*', true],
  ['a/*', 'a/b/c', true],
  ['a/b/*', 'a/*', false],
  ['a/*', 'ab/c', false],
  ['a/b*', 'a/bc', false],
  ['a/*', 'a/', false],
  ['a/*', 'a/../b', false],
];

test.each(abilities)('ability %s covers %s: %s', (grant, claim, expected) => {
  expect(covers({ can: grant, with: 'x:y' }, { can: claim, with: 'x:y' })).toBe(expected);
});

const resources: readonly [grant: string, claim: string, expected: boolean][] = [
  ['ixo:files', 'ixo:files', true],
  ['ixo:files', 'ixo:files/1', false],
  ['ixo:files/*', 'ixo:files/1', true],
  ['ixo:files/*', 'ixo:files/1/2', true],
  ['ixo:files/*', 'ixo:files/*', true],
  ['ixo:files/*', 'ixo:files', false],
  ['ixo:files/*', 'ixo:files/', false],
  ['ixo:files/*', 'ixo:filesystem/1', false],
  ['ixo:*', 'ixo:files', true],
  ['ixo:*', 'ixo:files/1', true],
  ['ixo:*', 'ixo:*', true],
  ['ixo:*', 'ixo:', false],
  ['ixo:*', 'ixoo:files', false],
  ['ixo:fil*', 'ixo:files', false],
  ['ixo:files/1', 'ixo:files/*', false],
  ['ixo:files/*', 'ixo:*', false],
  ['ucan:*', 'ixo:files', false],
  ['ixo:files/*', 'ixo:files/../mail', false],
  ['ixo:files/*', 'ixo:files/1/../../mail', false],
  ['ixo:files/*', 'ixo:files/%2e%2E/mail', false],
  ['ixo:files/*', 'ixo:files/.%2e', false],
  ['ixo:files/*', 'ixo:files/a\\..\\b', false],
  ['ixo:files/*', 'ixo:files/..a', true],
  ['ixo:files/*', 'ixo:files/..?x', false],
  ['ixo:files/*', 'ixo:files/..#x', false],
  ['ixo:files/*', 'ixo:files/a%2f..%2fmail', false],
  ['ixo:files/*', 'ixo:files/%2e%2e%5cmail', false],
  ['ixo:files/*', 'ixo:files/.\t./mail', false],
  ['ixo:files/*', 'ixo:files/.\n./mail', false],
  ['ixo:files/*', 'ixo:files/.\r./mail', false],
  ['ixo:files/*', 'ixo:files/./mail', false],
  ['ixo:files/*', 'ixo:files/.', false],
  ['ixo:files/*', 'ixo:files/...', true],
  ['ixo:files/*', 'ixo:files/a.b', true],
  ['ixo:files/*', 'ixo:files/a..', true],
  ['ixo:files/*', 'ixo:files/a%5C..%5Cmail', false],
  ['ixo:files/*', 'ixo:files/a%2F..', false],
];

test.each(resources)('resource %s covers %s: %s', (grant, claim, expected) => {
  expect(covers({ can: 'a/b', with: grant }, { can: 'a/b', with: claim })).toBe(expected);
});

function linkTo(byte: number): Link {
  return new Link(Uint8Array.of(byte));
}

const caveats: readonly [grant: IpldMap | undefined, claim: IpldMap | undefined, boolean][] = [
  [undefined, undefined, true],
  [undefined, { a: 1 }, true],
  [{}, undefined, true],
  [{ a: 1 }, undefined, false],
  [{ a: 1 }, {}, false],
  [{ a: 1 }, { a: 1 }, true],
  [{ a: 1 }, { a: 1, b: 2 }, true],
  [{ a: 1, b: 2 }, { a: 1 }, false],
  [{ a: 1 }, { a: '1' }, false],
  [{ a: 1 }, { a: 2 }, false],
  [{ a: null }, {}, false],
  [{ a: { b: 1, c: 2 } }, { a: { c: 2, b: 1 } }, true],
  [{ a: { b: 1 } }, { a: { b: 1, c: 2 } }, false],
  [{ a: [1, 2] }, { a: [2, 1] }, false],
  [{ a: Uint8Array.of(1) }, { a: Uint8Array.of(1) }, true],
  [{ a: Uint8Array.of(1) }, { a: Uint8Array.of(2) }, false],
  [{ a: Uint8Array.of(1) }, { a: [1] }, false],
  [{ a: [1] }, { a: Uint8Array.of(1) }, false],
  [{ a: [1, 2] }, { a: [1, 2] }, true],
  [{ a: [1] }, { a: [1, 2] }, false],
  [{ a: [1, 2] }, { a: [1] }, false],
  [{ a: [] }, { a: {} }, false],
  [{ a: {} }, { a: [] }, false],
  [{ a: {} }, { a: null }, false],
  [{ a: null }, { a: {} }, false],
  [{ a: { b: [{ c: 1 }] } }, { a: { b: [{ c: 1 }] } }, true],
  [{ a: { b: [{ c: 1 }] } }, { a: { b: [{ c: 2 }] } }, false],
  [{ a: linkTo(1) }, { a: linkTo(1) }, true],
  [{ a: linkTo(1) }, { a: linkTo(2) }, false],
  [{ a: linkTo(1) }, { a: linkTo(1).bytes }, false],
  [{ toString: 1 }, {}, false],
];

test.each(caveats)('caveats %j cover %j: %s', (grant, claim, expected) => {
  const right = { can: 'a/b', with: 'x:y' };
  expect(
    covers({ ...right, ...(grant && { nb: grant }) }, { ...right, ...(claim && { nb: claim }) }),
  ).toBe(expected);
});

test('grants do not add up', () => {
  const grants = [
    { can: 'a/b', with: 'x:1' },
    { can: 'a/*', with: 'x:2' },
  ];
  expect(isCovered({ can: 'a/c', with: 'x:1' }, grants)).toBe(false);
  expect(isCovered({ can: 'a/c', with: 'x:2' }, grants)).toBe(true);
  expect(isCovered({ can: 'a/c', with: 'x:2' }, [])).toBe(false);
});
