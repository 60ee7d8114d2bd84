import { describe, expect, it } from 'vitest';
import { createAllowList } from './allow-list.js';

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
