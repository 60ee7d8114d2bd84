import type { IncomingHttpHeaders } from 'node:http';
import { describe, expect, it } from 'vitest';
import { readAccessKey, readCredentials } from './caller.js';

const ucan = { 'x-auth-type': 'ucan' };
const delegation = { 'x-ucan-delegation': 'D' };

describe('readCredentials', () => {
  it('finds nothing in a request without credentials', () => {
    expect(readCredentials({})).toEqual({ invocation: undefined, delegation: undefined });
  });

  it('reads the bearer token and the delegation beside it', () => {
    const headers = { ...ucan, ...delegation, authorization: 'Bearer I' };
    expect(readCredentials(headers)).toEqual({ invocation: 'I', delegation: 'D' });
  });

  it.each<[string, string | string[]]>([
    ['as it is documented', 'ucan'],
    ['in capital letters', 'UCAN'],
    ['with spaces', ' ucan '],
    ['among others', 'jwt, ucan'],
    ['first of others', 'ucan,jwt'],
    ['in a repeated header', ['jwt', 'ucan']],
  ])('the bearer token counts with X-Auth-Type %s', (_, type) => {
    const headers = { 'x-auth-type': type, authorization: 'Bearer I' };
    expect(readCredentials(headers).invocation).toBe('I');
  });

  it.each<[string, string | undefined]>([
    ['no X-Auth-Type', undefined],
    ['an empty one', ''],
    ['another one', 'jwt'],
    ['one that only contains the word', 'ucan2'],
    ['two words', 'not ucan'],
  ])('the bearer token does not count with %s, the delegation does', (_, type) => {
    const authorization = 'Bearer I';
    const headers = { ...delegation, authorization, 'x-auth-type': type };
    expect(readCredentials(headers)).toEqual({ invocation: undefined, delegation: 'D' });
  });

  it.each([
    ['bearer I', 'I'],
    ['BEARER I', 'I'],
    ['Bearer    I', 'I'],
    ['  Bearer I  ', 'I'],
    ['Bearer I J', 'I J'],
  ])('%j has the bearer token %j', (authorization, token) => {
    expect(readCredentials({ ...ucan, authorization }).invocation).toBe(token);
  });

  it.each([undefined, '', '  '])('Authorization %j is a missing invocation', (authorization) => {
    expect(readCredentials({ ...ucan, authorization }).invocation).toBeUndefined();
    expect(readCredentials({ ...ucan, ...delegation, authorization })).toEqual({
      invocation: undefined,
      delegation: 'D',
    });
  });

  it.each(['Bearer', 'bearer', ' Bearer '])(
    '%j is a missing invocation, but an invalid one beside a delegation',
    (authorization) => {
      expect(readCredentials({ ...ucan, authorization }).invocation).toBeUndefined();
      expect(readCredentials({ ...ucan, ...delegation, authorization }).invocation).toBe('');
    },
  );

  it.each(['Bearer\tI', 'Bearer,I', 'Basic eDp5, Bearer I', 'Basic eDp5,bearer'])(
    '%j is an invalid invocation, also beside a delegation',
    (authorization) => {
      expect(readCredentials({ ...ucan, authorization }).invocation).toBe('');
      expect(readCredentials({ ...ucan, ...delegation, authorization }).invocation).toBe('');
    },
  );

  it.each(['Basic eDp5', 'DPoP eDp5', 'Bearers I', 'Forbearer I', 'I'])(
    '%j is a missing invocation: it may be for a proxy',
    (authorization) => {
      expect(readCredentials({ ...ucan, authorization }).invocation).toBeUndefined();
      const blank = { 'x-ucan-delegation': ' ' };
      expect(readCredentials({ ...ucan, ...blank, authorization }).invocation).toBeUndefined();
      expect(readCredentials({ ...ucan, ...delegation, authorization })).toEqual({
        invocation: undefined,
        delegation: 'D',
      });
    },
  );

  it.each<[string, IncomingHttpHeaders, string | undefined]>([
    ['with spaces around it', { 'x-ucan-delegation': ' D ' }, 'D'],
    ['that is empty', { 'x-ucan-delegation': '' }, undefined],
    ['of spaces', { 'x-ucan-delegation': '  ' }, undefined],
    ['that is repeated', { 'x-ucan-delegation': ['D', 'E'] }, undefined],
  ])('reads a delegation %s', (_, headers, expected) => {
    expect(readCredentials(headers).delegation).toBe(expected);
  });

  it('never reads an access key', () => {
    expect(readCredentials({ 'x-api-key': 'K' })).toEqual({
      invocation: undefined,
      delegation: undefined,
    });
  });
});

describe('readAccessKey', () => {
  it.each<[string, IncomingHttpHeaders, string | undefined]>([
    ['X-Api-Key', { 'x-api-key': ' K ' }, 'K'],
    ['a bearer token', { authorization: 'Bearer K' }, 'K'],
    ['X-Api-Key rather than a bearer token', { 'x-api-key': 'K', authorization: 'Bearer L' }, 'K'],
    [
      'a bearer token beside an empty X-Api-Key',
      { 'x-api-key': ' ', authorization: 'Bearer L' },
      'L',
    ],
    ['nothing in a request without credentials', {}, undefined],
    ['nothing in an empty bearer token', { authorization: 'Bearer' }, undefined],
    ['nothing in another scheme', { authorization: 'Basic eDp5' }, undefined],
    ['nothing in a delegation', { 'x-ucan-delegation': 'D' }, undefined],
  ])('finds %s', (_, headers, expected) => {
    expect(readAccessKey(headers)).toBe(expected);
  });

  it.each(['ucan', 'jwt', ''])('finds nothing with X-Auth-Type %j', (type) => {
    const headers = { 'x-auth-type': type };
    expect(readAccessKey({ ...headers, authorization: 'Bearer K' })).toBeUndefined();
    expect(readAccessKey({ ...headers, 'x-api-key': 'K' })).toBeUndefined();
  });
});
