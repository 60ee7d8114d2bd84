import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { HostLoad } from '../src/turns/start/turn-limits.js';
import { createArchive, importArchive, sendArchive } from './support/archives.js';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { BEHIND_PROXY, makeKnown, Neighbor } from './support/neighbors.js';
import { readSlowly } from './support/read-slowly.js';
import { openSession } from './support/stream.js';
import { postFile, upload } from './support/upload.js';

let model: ControlledModel;
let host: TestHost;
beforeEach(async () => {
  model = await startControlledModel();
});
afterEach(async () => {
  await host.close();
  model.close();
});

const start = async (env: Record<string, string>) => {
  host = await startHost({ env: { ...model.env, ...BEHIND_PROXY, ...env } });
};

const neighbors = (count: number, address: string) =>
  Array.from({ length: count }, () => new Neighbor(host, address));

const countAnswers = (
  answers: readonly { readonly status: number; readonly body: { readonly code?: string } }[],
) => {
  const counts: Record<string, number> = {};
  for (const { status, body } of answers) {
    const key = `${status} ${body.code ?? ''}`.trim();
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
};

describe('POST /messages', () => {
  const post = (user: Neighbor, sessionId: string) =>
    user.request('POST', `/messages/${sessionId}`, { body: { message: 'now' } });
  const send = async (user: Neighbor) => post(user, await openSession(user));

  /** Sends messages that the model does not answer; returns the refused ones and a function that ends the others. */
  async function flood(users: readonly Neighbor[], expected: number) {
    const refused: Awaited<ReturnType<typeof post>>[] = [];
    // One after the other: so many at once could be refused because the host is busy.
    const sessions: string[] = [];
    for (const user of users) sessions.push(await openSession(user));
    const sent = users.map((user, i) =>
      post(user, sessions[i] ?? '').then((answer) => void refused.push(answer)),
    );
    const turns: ModelTurn[] = [];
    for (let i = 0; i < expected; i++) turns.push(await model.next());
    await expect.poll(() => refused.length).toBe(users.length - expected);
    return {
      refused: countAnswers(refused),
      end: async () => {
        for (const turn of turns) turn.answer('late');
        await Promise.all(sent);
      },
    };
  }

  /** The answer of the model arrives while the flood continues. */
  async function isServed(user: Neighbor) {
    const reply = send(user);
    (await model.next()).answer('done');
    expect(await reply).toMatchObject({ status: 200, body: { message: { content: 'done' } } });
  }

  it('refuses new users of an address beyond its share with 429 address_busy, and serves others', async () => {
    await start({ TURNS_MAX: '40' });
    const { refused, end } = await flood(neighbors(60, '192.0.2.1'), 10);
    expect(refused).toEqual({ '429 address_busy': 50 });
    await isServed(new Neighbor(host, '192.0.2.2'));
    await isServed(new Neighbor(host, '192.0.2.3'));
    await end();
    await isServed(new Neighbor(host, '192.0.2.1'));
  });

  it('serves known users of an address that new ones attack from', async () => {
    await start({ TURNS_MAX: '40' });
    const known = neighbors(10, '192.0.2.1');
    makeKnown(host, known);
    const { end } = await flood(neighbors(60, '192.0.2.1'), 10);
    for (const user of known) await isServed(user);
    await end();
  });

  it('leaves known users a share that no number of addresses takes', async () => {
    await start({ TURNS_MAX: '40' });
    const known = new Neighbor(host, '192.0.2.250');
    makeKnown(host, [known]);
    const strangers = Array.from({ length: 200 }, (_, i) => new Neighbor(host, `192.0.2.${i}`));
    const { refused, end } = await flood(strangers, 30);
    expect(refused).toEqual({ '503 host_busy': 170 });
    await isServed(known);
    await end();
  });

  it('serves 100 new users of one address while one of them takes all its turns', async () => {
    await start({});
    const [attacker, ...honest] = neighbors(100, '192.0.2.1') as [Neighbor, ...Neighbor[]];
    const { refused, end } = await flood(Array(60).fill(attacker), 20);
    expect(refused).toEqual({ '429 too_many_turns': 40 });
    const replies = honest.map(send);
    for (const _ of honest) (await model.next()).answer('done');
    expect(countAnswers(await Promise.all(replies))).toEqual({ '200': 99 });
    await end();
  });
});

describe('new work', () => {
  /** What a host has by default; tests have no such limits otherwise. */
  const DEFAULTS = { RATE_LIMIT_PER_MINUTE: '600', RATE_LIMIT_ANONYMOUS_PER_MINUTE: '300' };

  async function answerAll(): Promise<never> {
    for (;;) (await model.next()).answer('done');
  }

  /** One turn of a user who has just arrived. */
  async function haveTurn(user: Neighbor) {
    const { status, body } = await user.request('POST', '/sessions');
    if (status !== 201) return { status, body };
    return user.request('POST', `/messages/${body.sessionId}`, { body: { message: 'now' } });
  }

  async function haveTurns(users: readonly Neighbor[]) {
    const answers: Awaited<ReturnType<typeof haveTurn>>[] = [];
    // Fewer at once than would keep a slow machine busy.
    const left = [...users];
    const work = async () => {
      for (let user = left.pop(); user; user = left.pop()) answers.push(await haveTurn(user));
    };
    await Promise.all([work(), work(), work(), work()]);
    return countAnswers(answers);
  }

  it('of 100 new users of one address in the same minute is accepted', async () => {
    await start(DEFAULTS);
    void answerAll();
    expect(await haveTurns(neighbors(100, '192.0.2.1'))).toEqual({ '200': 100 });
  });

  it('of 99 new users of one address is accepted while another one sends messages as fast as it can', async () => {
    await start(DEFAULTS);
    void answerAll();
    const [attacker, ...honest] = neighbors(100, '192.0.2.1') as [Neighbor, ...Neighbor[]];
    const sessionId = await openSession(attacker);
    let [sent, isOver] = [0, false];
    const attack = async () => {
      for (; !isOver; sent++)
        await attacker.request('POST', `/messages/${sessionId}`, { body: { message: 'more' } });
    };
    const attacks = Array.from({ length: 20 }, attack);
    // By then, it has used all requests that it has in a minute.
    await expect.poll(() => sent).toBeGreaterThan(scale(3000, 1000));
    const answers = await haveTurns(honest);
    isOver = true;
    await Promise.all(attacks);
    expect(answers).toEqual({ '200': 99 });
  });
});

describe('what starts turns on routes of plugins', () => {
  const rpc = (method: string, params: object = {}) => ({ jsonrpc: '2.0', id: 1, method, params });

  const post = (headers: Record<string, string>, path: string, body: object) =>
    fetch(host.url + path, {
      method: 'POST',
      headers: {
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        ...headers,
      },
      body: JSON.stringify(body),
    });

  /** The third is one more than a new user may start. */
  it.each([
    ['/v1/chat/completions', {}],
    ['/v1/responses', {}],
    ['/ui/chat', {}],
    ['/v2/agent/run', {}],
    ['/a2a/message:send', {}],
    ['/a2a', rpc('SendMessage')],
    ['/a2a', rpc('SendStreamingMessage')],
    ['/mcp', rpc('tools/call', { name: 'ask', arguments: {} })],
    ['/schedules/unknown/run', {}],
  ])('counts as new work: POST %s', async (path, body) => {
    await start({ RATE_LIMIT_PER_MINUTE: '10' });
    const user = new Neighbor(host, '192.0.2.1');
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await post(user.headers, path, body)).status);
    expect(statuses.indexOf(429)).toBe(2);
  });

  it.each([
    '/v1/chat/completions',
    '/v1/responses',
    '/ui/chat',
    '/v2/agent/run',
    '/a2a/message:send',
    '/schedules/unknown/run',
    '/schedules/hooks/did:key:z/unknown',
  ])('is refused by an overloaded host before it is known who sends it: POST %s', async (path) => {
    await start({});
    vi.spyOn(HostLoad.prototype, 'isTooHigh').mockReturnValue(true);
    onTestFinished(() => void vi.restoreAllMocks());
    expect((await post({}, path, {})).status).toBe(503);
  });

  it.each([
    ['/a2a', rpc('GetTask', { id: 'x' })],
    ['/mcp', rpc('tools/list')],
  ])('counts as one request otherwise: POST %s', async (path, body) => {
    await start({ RATE_LIMIT_PER_MINUTE: '10' });
    const user = new Neighbor(host, '192.0.2.1');
    for (let i = 0; i < 6; i++) expect((await post(user.headers, path, body)).status).not.toBe(429);
  });
});

describe('POST /sessions/:sessionId/fork', () => {
  it('counts as new work, and by its size against what a new user stores in a day', async () => {
    await start({ RATE_LIMIT_PER_MINUTE: '600', FILES_PER_NEW_USER_PER_DAY: '2mb' });
    const user = new Neighbor(host, '192.0.2.1');
    const sessionId = await openSession(user);
    const path = `/messages/${sessionId}`;
    const reply = user.request('POST', path, { body: { message: 'x'.repeat(150_000) } });
    (await model.next()).answer('y'.repeat(350_000));
    const { messageId } = { messageId: (await reply).body.message.id };
    const codes: string[] = [];
    for (let i = 0; i < 150; i++) {
      const fork = await user.request('POST', `/sessions/${sessionId}/fork`, {
        body: { messageId },
      });
      codes.push(fork.body.code ?? 'copied');
    }
    expect(codes.slice(0, 5)).toEqual([...Array(4).fill('copied'), 'upload_limit_reached']);
    expect(codes.at(-1)).toBe('rate_limited');
    expect((await user.request('GET', '/sessions')).body.total).toBe(5);
  });
});

describe('the limit of requests of an address', () => {
  it('is not used up for known users by new ones', async () => {
    await start({ RATE_LIMIT_PER_MINUTE: '20' });
    const known = new Neighbor(host, '192.0.2.1');
    makeKnown(host, [known]);
    const list = (user: Neighbor) => user.request('GET', '/sessions');
    const answers = await Promise.all(
      neighbors(300, '192.0.2.1').flatMap((user) => [list(user), list(user)]),
    );
    expect(countAnswers(answers)['429 rate_limited']).toBeGreaterThan(300);
    expect((await list(known)).status).toBe(200);
  });
});

/** Sends the first bytes of a body and no more; resolves to the code of the answer, if one comes before the end. */
function stall(user: Neighbor, path: string) {
  const headers = { ...user.headers, 'content-type': 'application/octet-stream' };
  const sending = request(host.url + path, { method: 'POST', headers });
  sending.on('error', () => {});
  sending.write('[');
  const code = once(sending, 'response').then(
    async ([response]: IncomingMessage[]) =>
      JSON.parse(await text(response as IncomingMessage)).code as string,
    () => undefined,
  );
  return { sending, code };
}

/** Begins to send a file whose length is known. */
function declare(user: Neighbor, name: string, bytes: number) {
  const headers = { ...user.headers, 'content-length': bytes };
  const sending = request(`${host.url}/files?name=${name}`, { method: 'POST', headers });
  const answer = once(sending, 'response').then(
    ([response]: IncomingMessage[]) => response,
    () => undefined,
  );
  sending.write('a');
  return { sending, answer };
}

/** Of files that are stored or arriving. */
const readUsedBytes = async (user: Neighbor): Promise<number> =>
  (await user.request('GET', '/files')).body.usedBytes;

describe('POST /files', () => {
  it('serves other addresses, and known users, while uploads of new users of one address stall', async () => {
    await start({});
    const known = new Neighbor(host, '192.0.2.1');
    makeKnown(host, [known]);
    const sending: ClientRequest[] = [];
    let refused = 0;
    for (const user of neighbors(40, '192.0.2.1')) {
      const stalled = stall(user, '/files?name=a.txt');
      sending.push(stalled.sending);
      void stalled.code.then((code) => {
        if (code === 'address_busy') refused += 1;
      });
    }
    await expect.poll(() => refused).toBe(24);
    await upload(known, 'a.txt', 'mine');
    await upload(new Neighbor(host, '192.0.2.2'), 'a.txt', 'mine too');
    for (const each of sending) each.destroy();
  });

  it('limits what new users send in a day, and each address', async () => {
    await start({ FILES_PER_NEW_USER_PER_DAY: '2mb', FILES_PER_ADDRESS_PER_DAY: '5mb' });
    const known = new Neighbor(host, '192.0.2.1');
    makeKnown(host, [known]);
    const file = (user: Neighbor, mb: number) =>
      postFile(user, 'a.bin', Buffer.alloc(mb * 1024 ** 2, Math.random().toString()));
    const full = { status: 429, body: { code: 'upload_limit_reached' } };
    const [one, two, three] = neighbors(3, '192.0.2.1') as [Neighbor, Neighbor, Neighbor];
    expect(await file(one, 2)).toMatchObject({ status: 200 });
    const refused = await file(one, 1);
    expect(refused).toMatchObject(full);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(3600);
    expect(await file(two, 2)).toMatchObject({ status: 200 });
    expect(await file(three, 2)).toMatchObject(full);
    expect(await file(known, 4)).toMatchObject({ status: 200 });
    expect(await file(new Neighbor(host, '192.0.2.2'), 2)).toMatchObject({ status: 200 });
  });

  it('costs nothing of a day if the file is there already, or does not arrive', async () => {
    await start({ FILES_PER_NEW_USER_PER_DAY: '2mb' });
    const user = new Neighbor(host, '192.0.2.1');
    const file = (letter: string) => Buffer.alloc(1024 ** 2, letter);
    for (let i = 0; i < 4; i++) await upload(user, 'a.bin', file('a'));
    const { sending } = declare(user, 'b.bin', 1024 ** 2);
    await expect.poll(() => readUsedBytes(user)).toBe(2 * 1024 ** 2);
    sending.destroy();
    await expect
      .poll(async () => (await postFile(user, 'c.bin', file('c'))).body.code)
      .toBeUndefined();
    expect((await postFile(user, 'd.bin', file('d'))).body.code).toBe('upload_limit_reached');
  });

  it('counts a file by its size against the limit of requests', async () => {
    await start({ RATE_LIMIT_PER_MINUTE: '40' });
    const user = new Neighbor(host, '192.0.2.1');
    const codes: (string | undefined)[] = [];
    for (let i = 0; i < 4; i++)
      codes.push((await postFile(user, 'a.bin', Buffer.alloc(10 * 1024 ** 2, `${i}`))).body.code);
    expect(codes).toEqual([undefined, undefined, undefined, 'rate_limited']);
  });

  it('is 503 files_full when all files together have reached FILES_MAX', async () => {
    await start({ FILES_MAX: '3mb' });
    const [one, two] = neighbors(2, '192.0.2.1') as [Neighbor, Neighbor];
    await upload(one, 'a.bin', Buffer.alloc(2 * 1024 ** 2, 'a'));
    const large = Buffer.alloc(2 * 1024 ** 2, 'b');
    await expect
      .poll(async () => (await postFile(two, 'b.bin', large)).body.code)
      .toBe('files_full');
  });

  it('is 503 files_full for what does not fit beside files that are arriving, and for a body of unknown length', async () => {
    await start({ FILES_MAX: '3mb' });
    const [one, two] = neighbors(2, '192.0.2.1') as [Neighbor, Neighbor];
    const file = Buffer.alloc(2 * 1024 ** 2, 'a');
    const { sending, answer } = declare(one, 'a.bin', file.length);
    await expect.poll(() => readUsedBytes(one)).toBe(file.length);
    expect((await postFile(two, 'b.bin', file)).body.code).toBe('files_full');
    const stream = new Blob([Buffer.alloc(4 * 1024 ** 2, 'c')]).stream();
    expect((await postFile(two, 'c.bin', stream)).body.code).toBe('files_full');
    sending.end(file.subarray(1));
    expect((await answer)?.statusCode).toBe(200);
    await upload(two, 'd.bin', Buffer.alloc(1024, 'd'));
  });
});

describe('POST /me/import', () => {
  it('imports an archive of another address while those of one arrive slowly', async () => {
    await start({});
    const sending: ClientRequest[] = [];
    let refused = 0;
    for (const user of neighbors(30, '192.0.2.1')) {
      const stalled = stall(user, '/me/import');
      sending.push(stalled.sending);
      void stalled.code.then((code) => {
        if (code === 'address_busy') refused += 1;
      });
    }
    await expect.poll(() => refused).toBe(14);
    const conversation = { title: 'a', create_time: 1, mapping: {}, conversation_id: 'c' };
    const user = new Neighbor(host, '192.0.2.2');
    const job = await importArchive(user, JSON.stringify([conversation]), 'application/json');
    expect(job).toMatchObject({ status: 'finished', format: 'chatgpt' });
    for (const each of sending) each.destroy();
  });

  it('imports a small archive while several large ones of another address are read', async () => {
    await start({});
    const conversations = (count: number) =>
      JSON.stringify(
        Array.from({ length: count }, (_, i) => ({
          title: `${i}`,
          create_time: 1,
          conversation_id: `c${i}`,
          mapping: {
            m: {
              id: 'm',
              message: { author: { role: 'user' }, content: { parts: ['x'.repeat(1000)] } },
            },
          },
        })),
      );
    const large = conversations(300);
    const others = neighbors(4, '192.0.2.1');
    const jobs = await Promise.all(
      others.map(async (user) => (await sendArchive(user, large, 'application/json')).body.id),
    );
    const user = new Neighbor(host, '192.0.2.2');
    const job = await importArchive(user, conversations(1), 'application/json');
    expect(job).toMatchObject({ status: 'finished' });
    const states = await Promise.all(
      others.map(async (other, i) => {
        const { body } = await other.request('GET', `/me/import/${jobs[i]}`);
        return body.status;
      }),
    );
    expect(states).toContain('running');
    await expect
      .poll(
        async () => {
          const last = others[3] as Neighbor;
          return (await last.request('GET', `/me/import/${jobs[3]}`)).body.status;
        },
        { timeout: 60_000 },
      )
      .toBe('finished');
  }, 90_000);
});

describe('POST /me/import of more than a new user may store in a day', () => {
  const MB = 1024 ** 2;

  it('stores what is allowed, says why the rest is missing, and stores all of it for a known user', async () => {
    await start({ FILES_PER_NEW_USER_PER_DAY: '2mb' });
    const [known, user] = neighbors(2, '192.0.2.1') as [Neighbor, Neighbor];
    makeKnown(host, [known]);
    const files = ['a', 'b', 'c'].map(
      (letter) => [`uploads/${letter}/${letter}.bin`, Buffer.alloc(MB, letter)] as const,
    );
    const archive = await createArchive({}, {}, new Map(files));
    expect(archive.length).toBeLessThan(MB / 10);
    expect(await importArchive(user, archive)).toMatchObject({
      status: 'failed',
      stored: { files: 2 },
      error: expect.stringMatching(/upload_limit_reached.*tomorrow/),
    });
    expect(await importArchive(user, archive)).toMatchObject({ stored: { files: 0 }, present: 2 });
    expect((await user.request('GET', '/files')).body).toMatchObject({ total: 2 });
    const more = await postFile(user, 'd.bin', Buffer.alloc(MB, 'd'));
    expect(more.body.code).toBe('upload_limit_reached');
    expect(await importArchive(known, archive)).toMatchObject({
      status: 'finished',
      stored: { files: 3 },
    });
  });

  it('counts conversations by their size, those that were there already by nothing', async () => {
    await start({ FILES_PER_NEW_USER_PER_DAY: '2mb' });
    const user = new Neighbor(host, '192.0.2.1');
    const conversations = (count: number) =>
      JSON.stringify(
        Array.from({ length: count }, (_, i) => {
          const content = { parts: ['x'.repeat(MB / 8)] };
          const message = { author: { role: 'user' }, content };
          const mapping = { m: { id: 'm', message } };
          return { title: `${i}`, create_time: 1, conversation_id: `c${i}`, mapping };
        }),
      );
    const send = (count: number) => importArchive(user, conversations(count), 'application/json');
    for (let i = 0; i < 3; i++) expect(await send(10)).toMatchObject({ status: 'finished' });
    const { stored, ...job } = await send(40);
    expect(job).toMatchObject({ status: 'failed', error: expect.stringContaining('tomorrow') });
    expect(stored.messages).toBeGreaterThan(3);
    expect(stored.messages).toBeLessThan(7);
  });
});

describe('GET /me/export', () => {
  it('exports for others while clients of one address read nothing', async () => {
    await start({ FILES_PER_NEW_USER_PER_DAY: '1gb' });
    const slow = neighbors(12, '192.0.2.1');
    const sockets = await Promise.all(
      slow.map(async (user, i) => {
        await upload(user, 'a.bin', Buffer.alloc(8 * 1024 ** 2, `${i}`));
        return readSlowly(user, '/me/export');
      }),
    );
    const user = new Neighbor(host, '192.0.2.2');
    const response = await fetch(`${host.url}/me/export`, { headers: user.headers });
    expect(response.status).toBe(200);
    expect((await response.arrayBuffer()).byteLength).toBeGreaterThan(1000);
    for (const socket of sockets) socket.destroy();
  });
});
