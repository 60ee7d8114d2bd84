import { describe, expect, it } from 'vitest';
import { createAllowList, isPublicAddress } from './address-rules.js';

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
