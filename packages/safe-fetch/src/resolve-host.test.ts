import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { dnsLookup, systemLookup } from './resolve-host.js';

const A = 1;
const AAAA = 28;
const never = new AbortController().signal;

const servers: Socket[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** Serves DNS: what `answer` gives for a type is the one record of every name; it is silent about names that are `slow`. */
async function startNameServer(answer: (type: number) => readonly number[] | undefined) {
  const server = createSocket('udp4');
  servers.push(server);
  const asked: string[] = [];
  server.on('message', (query, { port, address }) => {
    const end = query.indexOf(0, 12);
    const type = query.readUInt16BE(end + 1);
    const name = query.toString('latin1', 13, end);
    asked.push(name);
    if (!name.startsWith('slow')) server.send(reply(query, end, answer(type)), port, address);
  });
  server.bind(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { lookUp: dnsLookup([`127.0.0.1:${port}`]), asked };
}

/** The question with its answer, or with NXDOMAIN. */
function reply(query: Buffer, end: number, address: readonly number[] | undefined): Buffer {
  const header = Buffer.from(query.subarray(0, 12));
  header.writeUInt16BE(address ? 0x8180 : 0x8183, 2);
  header.writeUInt16BE(address ? 1 : 0, 6);
  header.fill(0, 8);
  const question = query.subarray(12, end + 5);
  if (!address) return Buffer.concat([header, question]);
  const type = query.subarray(end + 1, end + 3);
  const fixed = [0, 1, 0, 0, 0, 60, 0, address.length];
  return Buffer.concat([
    header,
    question,
    Buffer.from([0xc0, 12]),
    type,
    Buffer.from([...fixed, ...address]),
  ]);
}

const V4 = [203, 0, 113, 7];
const V6 = [0x20, 0x01, 0x0d, 0xb8, ...Array(11).fill(0), 7];

describe('dnsLookup', () => {
  it.each<[string, Record<number, number[]>, string[]]>([
    ['both kinds', { [A]: V4, [AAAA]: V6 }, ['203.0.113.7', '2001:db8::7']],
    ['IPv4 alone', { [A]: V4 }, ['203.0.113.7']],
    ['IPv6 alone', { [AAAA]: V6 }, ['2001:db8::7']],
  ])('gives the addresses of a name that has %s', async (_, records, addresses) => {
    const { lookUp } = await startNameServer((type) => records[type]);
    expect(await lookUp('name.example', never)).toEqual(addresses);
  });

  it('fails for an unknown name', async () => {
    const { lookUp } = await startNameServer(() => undefined);
    await expect(lookUp('unknown.example', never)).rejects.toMatchObject({ code: 'ENOTFOUND' });
  });

  it.each(['localhost', 'localhost.', 'app.localhost'])('sends no query for %s', async (name) => {
    const { lookUp, asked } = await startNameServer(() => V4);
    expect(await lookUp(name, never)).toEqual(['127.0.0.1']);
    expect(asked).toEqual([]);
  });

  it('ends with its signal', async () => {
    const { lookUp, asked } = await startNameServer(() => V4);
    const abort = new AbortController();
    const looking = lookUp('slow.example', abort.signal);
    await expect.poll(() => asked.length).toBeGreaterThan(0);
    abort.abort();
    await expect(looking).rejects.toMatchObject({ code: 'ECANCELLED' });
  });

  it('takes no thread for names that are slow', async () => {
    const { lookUp, asked } = await startNameServer(() => V4);
    const abort = new AbortController();
    const looking = Array.from({ length: 50 }, (_, n) =>
      lookUp(`slow${n}.example`, abort.signal).catch(() => 'cancelled'),
    );
    await expect.poll(() => new Set(asked).size).toBe(50);
    expect(await readFile(import.meta.filename, 'utf8')).toContain('takes no thread');
    expect(await systemLookup('localhost', never)).toContain('127.0.0.1');
    abort.abort();
    expect(new Set(await Promise.all(looking))).toEqual(new Set(['cancelled']));
  });
});
