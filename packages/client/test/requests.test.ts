import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import {
  createOracleClient,
  createSigner,
  OracleClientError,
  type OracleClientOptions,
} from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { startHost, type TestHost } from '../../host/test/support/host.js';
import { createTestClient } from './support/client.js';

let host: TestHost;
beforeAll(async () => {
  host = await startHost();
});
afterAll(() => host.close());

describe('createOracleClient', () => {
  it('card returns the DID of the oracle', async () => {
    const client = createTestClient(host);
    expect(await client.card()).toMatchObject({ did: host.did });
    expect(client.did).toMatch(/^did:key:z/);
  });

  it('sessions: create, list, rename and delete', async () => {
    const client = createTestClient(host);
    const titles = ['one', 'two', 'three'];
    for (const title of titles) await client.sessions.create({ title });
    const untitled = await client.sessions.create();
    expect(untitled).toMatchObject({ title: 'Untitled', oracleDid: host.did });
    const page = await client.sessions.list({ limit: 2, offset: 1 });
    expect(page.total).toBe(4);
    expect(page.sessions.map(({ title }) => title)).toEqual(['three', 'two']);
    const { sessionId } = untitled;
    expect(await client.sessions.rename(sessionId, 'named')).toMatchObject({
      sessionId,
      title: 'named',
    });
    await client.sessions.delete(sessionId);
    expect((await client.sessions.list()).sessions).toHaveLength(3);
  });

  it.each(['', '.', '..'])('refuses %j as an id: it names another route', async (id) => {
    const client = createTestClient(host);
    await client.delegation.grant({ capabilities: [{ can: 'store/*', with: client.did }] });
    const refused = { code: 'bad_request', message: expect.stringContaining('Invalid id') };
    await expect(client.delegation.revoke(id)).rejects.toMatchObject(refused);
    await expect(client.files.download(id)).rejects.toMatchObject(refused);
    await expect(client.sessions.delete(id)).rejects.toMatchObject(refused);
    await expect(client.messages.send(id, 'hello')).rejects.toMatchObject(refused);
    expect(await client.delegation.list()).toHaveLength(1);
  });

  it('sessions.create returns the first session if it is repeated with its idempotencyKey', async () => {
    const client = createTestClient(host);
    const first = await client.sessions.create({ idempotencyKey: 'one' });
    expect(await client.sessions.create({ idempotencyKey: 'one' })).toEqual(first);
    expect((await client.sessions.list()).total).toBe(1);
  });

  it('messages: send, list and page', async () => {
    const client = createTestClient(host);
    const { sessionId } = await client.sessions.create();
    const reply = await client.messages.send(sessionId, 'hello');
    expect(reply.message.content).not.toBe('');
    const whole = await client.messages.send(sessionId, {
      message: 'again',
      returnAllMessages: true,
    });
    expect(whole.messages).toHaveLength(4);
    expect(await client.messages.list(sessionId)).toEqual(whole.messages);
    const newest = await client.messages.page(sessionId, { limit: 1 });
    expect(newest.messages.map(({ content }) => content)[0]).toBe('again');
    expect(newest).toMatchObject({ hasOlder: true, hasNewer: false });
    const older = await client.messages.page(sessionId, { before: newest.prevCursor ?? '' });
    expect(older.messages[0]?.content).toBe('hello');
  });

  it('stream yields the parts of an answer', async () => {
    const client = createTestClient(host);
    const { sessionId } = await client.sessions.create();
    const parts = [];
    for await (const part of client.stream(sessionId, 'hello')) parts.push(part);
    expect(parts[0]?.event).toBe('run');
    expect(parts.at(-1)).toMatchObject({ event: 'done', data: { status: 'finished' } });
    expect(await client.runs.current(sessionId)).toMatchObject({ status: 'finished' });
    for await (const part of client.resume(sessionId)) throw new Error(`unexpected ${part.event}`);
  });

  it('models.list and plugins.list work without a signer', async () => {
    const signer = {
      did: 'did:key:none',
      invoke: () => Promise.reject(new Error('locked')),
      delegate: () => Promise.reject(new Error('locked')),
    };
    const client = createOracleClient({ url: host.url, signer });
    expect((await client.models.list()).models[0]).toMatchObject({ isDefault: true });
    const plugins = await client.plugins.list();
    expect(plugins.map(({ name }) => name)).toContain('memory');
  });

  it('delegation: grant, status, revoke, create and store', async () => {
    const client = createTestClient(host);
    expect(await client.delegation.status()).toEqual({ authorized: false });
    const capabilities = [{ can: 'store/*', with: client.did }];
    const expiration = Math.floor(Date.now() / 1000) + 3600;
    expect(await client.delegation.grant({ capabilities, expiration })).toEqual({
      ok: true,
      expiration,
    });
    expect(await client.delegation.status()).toEqual({ authorized: true, expiration });
    await client.delegation.revoke();
    expect(await client.delegation.status()).toEqual({ authorized: false });
    const { token } = await client.delegation.create({ capabilities, expiration });
    expect(await client.delegation.store(token)).toMatchObject({ ok: true });
  });

  it('delegation.list shows every delegation; revoke and revokeAll end them', async () => {
    const client = createTestClient(host);
    const capabilities = [{ can: 'store/*', with: client.did }];
    for (const nth of [1, 2, 3])
      await client.delegation.grant({
        capabilities,
        expiration: Math.floor(Date.now() / 1000) + nth * 3600,
      });
    const [current, replaced] = await client.delegation.list();
    expect(current).toMatchObject({ isCurrent: true, capabilities, audience: host.did });
    expect(replaced).toMatchObject({ isCurrent: false });
    await client.delegation.revoke(replaced?.cid);
    expect(await client.delegation.list()).toHaveLength(2);
    await expect(client.delegation.revoke(replaced?.cid)).rejects.toMatchObject({
      code: 'delegation_not_found',
      status: 404,
    });
    expect(await client.delegation.revokeAll()).toEqual({ revoked: 2, stopped: [] });
    expect(await client.delegation.list()).toEqual([]);
  });

  it('redeemInvitation returns the reason for a rejected invitation', async () => {
    await expect(createTestClient(host).redeemInvitation('garbage')).rejects.toMatchObject({
      code: 'invalid_invitation',
      status: 400,
    });
  });

  it.each([
    ['url "not a url": use an address', { url: 'not a url' }],
    ['url "": use an address', { url: undefined }],
    ['url "localhost:3000": use an address', { url: 'localhost:3000' }],
    ['url: remove the user name', { url: 'http://me:secret@127.0.0.1' }],
    ['url: remove what begins with ?', { url: 'http://127.0.0.1/?a=b' }],
    ['signer: pass', { signer: undefined }],
    ['signer: it is a promise', { signer: Promise.resolve() }],
    ['fetch: it is not a function', { fetch: 'fetch' }],
    ['timezone "Mars/Base"', { timezone: 'Mars/Base' }],
    ['matrix: it needs accessToken', { matrix: {} }],
  ])('refuses an invalid %s', (message, invalid) => {
    const signer = createSigner(generateSigner());
    const options = { url: 'http://127.0.0.1', signer, ...invalid } as OracleClientOptions;
    const refused = { code: 'bad_request', message: expect.stringContaining(`Invalid ${message}`) };
    expect(() => createOracleClient(options)).toThrow(expect.objectContaining(refused));
  });

  it('accepts a url with a path prefix and a trailing slash', async () => {
    const paths: string[] = [];
    const client = createOracleClient({
      url: 'https://proxy.example/oracle/',
      signer: createSigner(generateSigner()),
      fetch: (url, request) => {
        paths.push(String(url));
        return fetch(String(url).replace('https://proxy.example/oracle', host.url), request);
      },
    });
    await client.sessions.list({ limit: 1 });
    expect(paths).toEqual([
      'https://proxy.example/oracle/.well-known/oracle.json',
      'https://proxy.example/oracle/sessions?limit=1',
    ]);
  });
});

describe('OracleClientError', () => {
  const failing = (promise: Promise<unknown>): Promise<OracleClientError> =>
    promise.then(
      () => Promise.reject(new Error('nothing went wrong')),
      (error) => error,
    );

  it('has the code, status and request id of an error reply', async () => {
    const error = await failing(createTestClient(host).messages.list('nowhere'));
    expect(error).toBeInstanceOf(OracleClientError);
    expect(error).toMatchObject({ code: 'session_not_found', status: 404 });
    expect(error.requestId).toMatch(/^[\w-]{36}$/);
  });

  it('has one line per invalid field', async () => {
    const error = await failing(createTestClient(host).sessions.list({ limit: 1000, offset: -1 }));
    expect(error).toMatchObject({ code: 'validation_failed', status: 400 });
    expect(error.lines).toHaveLength(2);
  });

  it('is thrown by a rejected stream before the first part', async () => {
    const error = await failing(createTestClient(host).stream('nowhere', 'hello').next());
    expect(error).toMatchObject({ code: 'session_not_found' });
  });

  it('has the code network_error if the oracle is unreachable', async () => {
    const error = await failing(createTestClient({ url: 'http://127.0.0.1:1' }).sessions.list());
    expect(error).toMatchObject({ code: 'network_error', status: undefined });
    expect(error.message).toBe('Cannot reach http://127.0.0.1:1: bad port');
  });

  it('has the code network_error if the oracle accepts the connection and does not answer', async () => {
    vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => {
      const timer = new AbortController();
      setTimeout(() => timer.abort(new DOMException('late', 'TimeoutError')), 50);
      return timer.signal;
    });
    const server = createTcpServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const error = await failing(createTestClient({ url }).sessions.list());
    vi.restoreAllMocks();
    server.close();
    expect(error).toMatchObject({
      code: 'network_error',
      message: 'The oracle did not answer within 15 seconds',
    });
  });

  it('has the Retry-After of a proxy, in seconds or as a date', async () => {
    const answer = (wait: string) =>
      createTestClient(host, {
        fetch: async () =>
          new Response('<html>', { status: 503, headers: { 'retry-after': wait } }),
      }).sessions.list();
    expect(await failing(answer('7'))).toMatchObject({
      status: 503,
      retryAfterSeconds: 7,
      message: expect.stringMatching(/returned status 503. Try again in 7 seconds$/),
    });
    expect((await failing(answer('1'))).message).toMatch(/Try again in 1 second$/);
    const { retryAfterSeconds } = await failing(
      answer(new Date(Date.now() + 90_000).toUTCString()),
    );
    expect(retryAfterSeconds).toBeGreaterThan(80);
    expect(retryAfterSeconds).toBeLessThanOrEqual(90);
    expect(await failing(answer('soon'))).toMatchObject({ retryAfterSeconds: undefined });
  });

  it('has the code invalid_reply if the reply is not from an oracle', async () => {
    const answer = (text: string, status = 200) =>
      createTestClient(host, { fetch: async () => new Response(text, { status }) }).sessions.list();
    expect(await failing(answer('<html>'))).toMatchObject({ code: 'invalid_reply' });
    expect(await failing(answer('{}'))).toMatchObject({ code: 'invalid_reply' });
    expect(await failing(answer('<html>', 502))).toMatchObject({
      code: 'invalid_reply',
      status: 502,
    });
  });

  it('names the address to use if the oracle redirects to another origin', async () => {
    const server = createServer(({ url = '' }, response) => {
      response.writeHead(301, { location: host.url + url }).end();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const signer = createSigner(generateSigner());
    const error = await failing(createOracleClient({ url, signer }).sessions.list());
    server.close();
    expect(error).toMatchObject({
      code: 'invalid_reply',
      message: `${url} redirects to ${host.url}: use that address`,
    });
  });

  it('is not thrown on abort: the reason is the caller’s', async () => {
    const signal = AbortSignal.abort(new Error('cancelled'));
    expect((await failing(createTestClient(host).sessions.list({ signal }))).message).toBe(
      'cancelled',
    );
    const stream = createTestClient(host).stream('any', 'hello', { signal });
    expect((await failing(stream.next())).message).toBe('cancelled');
  });

  it('is not thrown on abort while the oracle does not answer the first request', async () => {
    const silent = () => new Promise<Response>(() => undefined);
    const abort = (request: (options: { signal: AbortSignal }) => Promise<unknown>) => {
      const stop = new AbortController();
      const failed = failing(request({ signal: stop.signal }));
      stop.abort(new Error('cancelled'));
      return failed;
    };
    const client = createTestClient(host, { fetch: silent });
    const requests = [
      abort((options) => client.sessions.list(options)),
      abort((options) => client.messages.send('any', 'hello', options)),
      abort((options) => client.stream('any', 'hello', options).next()),
    ];
    for (const { message } of await Promise.all(requests)) expect(message).toBe('cancelled');
    // With a tool, a message waits for the socket, at most five seconds.
    client.addTool({ name: 'look', description: 'Looks', schema: z.object({}), run: () => 1 });
    const waiting = abort((options) => client.stream('any', 'hello', options).next());
    const late = new Promise((resolve) => setTimeout(resolve, 4_000, 'late'));
    expect(await Promise.race([waiting, late])).toMatchObject({ message: 'cancelled' });
    client.close();
  });

  it('has the code network_error if a reply breaks off; a message is then asked for again', async () => {
    let onReply: (() => void) | undefined;
    const client = createTestClient(host, {
      fetch: async (url, request) => {
        const response = await fetch(url, request);
        const before = onReply;
        onReply = undefined;
        return before ? breakOff(response, before) : response;
      },
    });
    const { sessionId } = await client.sessions.create();
    onReply = () => undefined;
    expect(await failing(client.sessions.list())).toMatchObject({ code: 'network_error' });
    onReply = () => undefined;
    expect(await client.messages.send(sessionId, 'hello')).toMatchObject({ status: 'finished' });
    expect(await client.messages.list(sessionId)).toHaveLength(2);
    const stop = new AbortController();
    onReply = () => stop.abort(new Error('cancelled'));
    const aborted = client.sessions.list({ signal: stop.signal });
    expect((await failing(aborted)).message).toBe('cancelled');
  });

  it('has the code signing_failed if the signer rejects', async () => {
    const sign = () => Promise.reject(new Error('the user said no'));
    const { did } = generateSigner();
    const client = createTestClient(host, { signer: createSigner({ did, sign }) });
    expect(await failing(client.sessions.list())).toMatchObject({
      code: 'signing_failed',
      message: 'Signing failed: the user said no',
    });
  });
});

/** The reply as it arrives if the connection breaks in the middle; calls `onBreak` before. */
async function breakOff(response: Response, onBreak: () => void): Promise<Response> {
  const bytes = new Uint8Array(await response.arrayBuffer());
  const body = new ReadableStream({
    pull: (controller) => {
      onBreak();
      controller.error(new TypeError('terminated'));
    },
    start: (controller) => controller.enqueue(bytes.slice(0, 10)),
  });
  return new Response(body, { status: response.status });
}
