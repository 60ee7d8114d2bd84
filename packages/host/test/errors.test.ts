import { request } from 'node:http';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { BadRequestException, Controller, Get, HttpException, Module } from '@nestjs/common';
import { ErrorBody, OracleError } from '@sibyl/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { TestUser } from './support/user.js';

/** As a plugin's own copy of Nest would throw it. */
class ForeignHttpException extends Error {
  getStatus = () => 418;
  getResponse = () => ({ statusCode: 418, message: 'short and stout', code: 'teapot' });
}

@Controller('faults')
class FaultsController {
  @Get('nest')
  nest() {
    throw new BadRequestException('not like this');
  }

  @Get('foreign')
  foreign() {
    throw new ForeignHttpException('short and stout');
  }

  @Get('text')
  text() {
    throw new HttpException('just text', 409);
  }

  @Get('credit')
  credit() {
    const ids = ['claim-1'];
    throw new OracleError('insufficient_credit', {
      fields: { claims: ids, outstandingClaims: ids },
    });
  }

  @Get('bug')
  bug() {
    throw new TypeError('secret detail of the bug');
  }
}

@Module({ controllers: [FaultsController] })
class FaultsModule {}

let host: TestHost;
let alice: TestUser;
beforeAll(async () => {
  const faults = testPlugin('faults', { getNestModules: () => [FaultsModule] });
  host = await startHost({ plugins: [faults], env: { BODY_LIMIT: '2kb' } });
  alice = new TestUser(host);
});
afterAll(() => host.close());

async function send(path: string, body: string, headers: Record<string, string> = {}) {
  const response = await fetch(host.url + path, {
    method: 'POST',
    headers: { ...alice.headers, 'content-type': 'application/json', ...headers },
    body,
  });
  return { status: response.status, body: ErrorBody.parse(await response.json()) };
}

describe('ErrorFilter sends every error as an error body', () => {
  it.each([
    ['bad JSON', '{"a":', 400, 'invalid_json', 'Bad Request'],
    ['a bare value', '"x"', 400, 'invalid_json', 'Bad Request'],
    ['an unknown field', '{"titel":"x"}', 400, 'validation_failed', 'Bad Request'],
    ['a wrong type', '{"title":5}', 400, 'validation_failed', 'Bad Request'],
    ['a long body', `{"title":"${'x'.repeat(4096)}"}`, 413, 'body_too_large', 'Payload Too Large'],
    ['deep JSON', '['.repeat(900) + ']'.repeat(900), 400, 'validation_failed', 'Bad Request'],
    ['__proto__', '{"__proto__":{"title":"x"}}', 400, 'validation_failed', 'Bad Request'],
  ])('%s', async (_, text, status, code, error) => {
    const answer = await send('/sessions', text);
    expect(answer.status).toBe(status);
    expect(answer.body).toMatchObject({ statusCode: status, code, error });
    expect(answer.body.requestId).toMatch(/^[0-9a-f-]{36}$/);
  });

  it.each([
    ['/faults/nest', 400, 'bad_request', 'not like this'],
    ['/faults/foreign', 418, 'teapot', 'short and stout'],
    ['/faults/text', 409, 'conflict', 'just text'],
    ['/faults/bug', 500, 'internal_error', 'Internal server error'],
    ['/nowhere', 404, 'not_found', 'No such route; /docs lists them'],
  ])('%s', async (path, status, code, message) => {
    const answer = await alice.request('GET', path);
    expect(answer.status).toBe(status);
    expect(answer.body).toMatchObject({ statusCode: status, code, message });
    expect(answer.body.requestId).toBe(answer.headers.get('x-request-id'));
  });

  it('names each invalid field', async () => {
    const { body } = await send('/sessions', '{"title":"","a":1,"b":2}');
    expect(body.message).toEqual([
      expect.stringMatching(/^title: /),
      'a: unknown field',
      'b: unknown field',
    ]);
    const query = await alice.request('GET', '/sessions?limit=0&offset=-1');
    expect(query.body.message).toEqual([
      'limit: must be a whole number from 1 to 100',
      'offset: must be a whole number, 0 or more',
    ]);
  });

  it('sends the claims of 402 twice', async () => {
    const { status, body } = await alice.request('GET', '/faults/credit');
    expect(status).toBe(402);
    expect(body).toMatchObject({ claims: ['claim-1'], outstandingClaims: ['claim-1'] });
  });

  it('only logs the details of a bug', async () => {
    const { body } = await alice.request('GET', '/faults/bug');
    expect(JSON.stringify(body)).not.toContain('secret');
    expect(host.log.some((line) => JSON.stringify(line).includes('secret detail'))).toBe(true);
  });
});

it.each(['POST', 'DELETE'])('%s accepts a JSON content type with an empty body', async (method) => {
  const path = method === 'POST' ? '/sessions' : '/delegation';
  expect((await alice.request(method, path)).status).toBe(method === 'POST' ? 201 : 200);
});

describe('a request body', () => {
  const post = (
    path: string,
    headers: Record<string, string>,
    body: string | Uint8Array<ArrayBuffer>,
  ) => fetch(host.url + path, { method: 'POST', headers, body });

  it('of another type is rejected, not ignored', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded']) {
      const headers = { ...alice.headers, 'content-type': type };
      const response = await post('/sessions', headers, '{"title":"x"}');
      expect([response.status, await response.json()]).toEqual([
        415,
        expect.objectContaining({ code: 'unsupported_media_type' }),
      ]);
    }
  });

  it('is not decompressed, and not read without authentication', async () => {
    const packed = gzipSync(JSON.stringify({ title: 'x'.repeat(100) }));
    const type = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
    const known = await post('/sessions', { ...alice.headers, ...type }, packed);
    expect(known.status).toBe(415);
    const stranger = await post('/sessions', { 'content-type': 'application/json' }, '{"a":');
    expect(stranger.status).toBe(401);
  });
});

describe('X-Request-Id', () => {
  it.each([
    ['the caller’s own', 'abc.DEF_1:2-3', 'abc.DEF_1:2-3'],
    ['that of AWS', 'Root=1-67891233-abc; a+b/c==', 'Root=1-67891233-abc; a+b/c=='],
    ['a new one for odd characters', 'a\u00e4b', expect.stringMatching(/^[0-9a-f-]{36}$/)],
    ['a new one for a long one', 'x'.repeat(257), expect.stringMatching(/^[0-9a-f-]{36}$/)],
  ])('is %s', async (_, sent, expected) => {
    const response = await fetch(`${host.url}/health`, { headers: { 'x-request-id': sent } });
    expect(response.headers.get('x-request-id')).toEqual(expected);
  });
});

describe('HttpAdapter', () => {
  it('answers headers over the limit as JSON', async () => {
    const { port } = new URL(host.url);
    const status = await new Promise((resolve, reject) => {
      const sent = request({ port, headers: { 'x-long': 'x'.repeat(40_000) } }, (response) => {
        let text = '';
        response.on('data', (chunk) => (text += chunk));
        response.on('end', () => resolve([response.statusCode, JSON.parse(text).code]));
      });
      sent.on('error', reject).end();
    });
    expect(status).toEqual([431, 'headers_too_large']);
  });

  it('answers invalid HTTP as JSON', async () => {
    const socket = connect(Number(new URL(host.url).port), '127.0.0.1');
    socket.end('NONSENSE\r\n\r\n');
    let text = '';
    for await (const chunk of socket) text += chunk;
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
    expect(JSON.parse(text.split('\r\n\r\n')[1] ?? '')).toMatchObject({ code: 'bad_request' });
  });

  it('accepts headers with two tokens of maximum length', async () => {
    const { status } = await alice.request('GET', '/sessions', {
      headers: { 'x-ucan-delegation': 'A'.repeat(8192), 'x-matrix-access-token': 'B'.repeat(8192) },
    });
    expect(status).toBe(200);
  });
});
