import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { createAllowList, dnsLookup, isPublicAddress, systemLookup } from './address-rules.js';

describe('isPublicAddress', () => {
  it.each([
    '1.1.1.1',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '192.167.255.255',
    '223.255.255.255',
    '2606:4700:4700::1111',
    '2a00:1450:4001:81b::200e',
    '2001:4860:4860::8888',
  ])('%s is public', (address) => {
    expect(isPublicAddress(address)).toBe(true);
  });

  it.each([
    ['0.0.0.0', 'unspecified'],
    ['0.1.2.3', 'this network'],
    ['10.0.0.1', 'private'],
    ['100.64.0.1', 'carrier-grade NAT'],
    ['100.100.100.200', 'Alibaba metadata'],
    ['127.0.0.1', 'loopback'],
    ['127.255.255.254', 'loopback'],
    ['168.63.129.16', 'Azure metadata'],
    ['169.254.1.1', 'link-local'],
    ['169.254.169.254', 'metadata'],
    ['169.254.170.2', 'container metadata'],
    ['172.16.0.1', 'private'],
    ['172.31.255.255', 'private'],
    ['192.0.0.192', 'Oracle metadata'],
    ['192.0.2.1', 'documentation'],
    ['192.88.99.1', '6to4 relay'],
    ['192.168.1.1', 'private'],
    ['198.18.0.1', 'benchmark'],
    ['198.19.255.255', 'benchmark'],
    ['198.51.100.1', 'documentation'],
    ['203.0.113.1', 'documentation'],
    ['224.0.0.1', 'multicast'],
    ['239.255.255.255', 'multicast'],
    ['240.0.0.1', 'reserved'],
    ['255.255.255.255', 'broadcast'],
    ['::', 'unspecified'],
    ['::1', 'loopback'],
    ['::ffff:127.0.0.1', 'IPv4-mapped'],
    ['::ffff:7f00:1', 'IPv4-mapped in hex'],
    ['::ffff:1.1.1.1', 'IPv4-mapped, even of a public address'],
    ['::ffff:0:127.0.0.1', 'IPv4-translated'],
    ['::127.0.0.1', 'IPv4-compatible'],
    ['64:ff9b::7f00:1', 'NAT64'],
    ['64:ff9b::a9fe:a9fe', 'NAT64 of metadata'],
    ['64:ff9b:1::1', 'local NAT64'],
    ['100::1', 'discard'],
    ['2001::1', 'Teredo'],
    ['2001:0:7f00:1::', 'Teredo'],
    ['2001:2::1', 'benchmark'],
    ['2001:10::1', 'ORCHID'],
    ['2001:20::1', 'ORCHIDv2'],
    ['2001:db8::1', 'documentation'],
    ['2002:7f00:1::', '6to4 of loopback'],
    ['2002:a9fe:a9fe::', '6to4 of metadata'],
    ['3fff::1', 'documentation'],
    ['5f00::1', 'segment routing'],
    ['fc00::1', 'unique local'],
    ['fd00:ec2::254', 'AWS metadata'],
    ['fd20:ce::254', 'Google metadata'],
    ['fe80::1', 'link-local'],
    ['fe80::1%eth0', 'link-local with a zone'],
    ['2606:4700::1%eth0', 'any zone'],
    ['fec0::1', 'site-local'],
    ['ff02::1', 'multicast'],
    ['', 'nothing'],
    ['localhost', 'a name'],
    ['2130706433', 'a decimal spelling'],
  ])('%s is not (%s)', (address) => {
    expect(isPublicAddress(address)).toBe(false);
  });
});

const allowsHost = (entry: string, url: string) =>
  createAllowList([entry]).includesHost(new URL(url));

describe('createAllowList', () => {
  it.each([
    ['localhost', 'http://localhost:8080/'],
    ['LocalHost', 'https://localhost/'],
    ['localhost:8080', 'http://localhost:8080/'],
    ['localhost:443', 'https://localhost/'],
    ['localhost:80', 'http://localhost/'],
    ['127.0.0.1', 'http://2130706433/'],
    ['::1', 'http://[::1]:9/'],
    ['[::1]:9', 'http://[::1]:9/'],
    ['bücher.example', 'https://xn--bcher-kva.example/'],
  ])('%s opens %s', (entry, url) => {
    expect(allowsHost(entry, url)).toBe(true);
  });

  it.each([
    ['localhost', 'http://localhost.evil.example/'],
    ['localhost', 'http://a.localhost/'],
    ['localhost:8080', 'http://localhost:8081/'],
    ['localhost:443', 'http://localhost/'],
    ['127.0.0.1', 'http://127.0.0.2/'],
    ['127.0.0.0/8', 'http://127.0.0.1/'],
  ])('%s does not name %s', (entry, url) => {
    expect(allowsHost(entry, url)).toBe(false);
  });

  it('holds the addresses of its CIDRs only', () => {
    const list = createAllowList(['10.1.0.0/16', 'fd12::/32', '127.0.0.1']);
    expect(list.includesAddress('10.1.255.255')).toBe(true);
    expect(list.includesAddress('fd12:0:1::1')).toBe(true);
    expect(list.includesAddress('10.2.0.0')).toBe(false);
    expect(list.includesAddress('fd13::1')).toBe(false);
    expect(list.includesAddress('127.0.0.1')).toBe(false);
    expect(list.includesAddress('nonsense')).toBe(false);
  });

  it.each([
    '',
    'http://localhost',
    'a b',
    'user@host',
    '10.0.0.0/33',
    '10.0.0/8',
    '::/129',
    'host:port',
    '*',
    '10.0.0.0/8/8',
  ])('refuses the entry %j when it is made', (entry) => {
    expect(() => createAllowList([entry])).toThrow(TypeError);
  });
});

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
