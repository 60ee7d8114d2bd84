import { describe, expect, it } from 'vitest';
import { createSafeFetch } from '../src/index.js';
import { serve } from './support/local-server.js';

const rejects = (code: string) => expect.objectContaining({ name: 'SafeFetchError', code });

describe('what may be asked at all', () => {
  const safeFetch = createSafeFetch({ allow: ['127.0.0.0/8'], lookup: async () => ['1.1.1.1'] });

  it.each([
    ['file:///etc/passwd'],
    ['ftp://example.org/'],
    ['data:text/plain,hello'],
    ['gopher://127.0.0.1/'],
    ['javascript:alert(1)'],
    ['blob:https://example.org/1'],
    ['http://example.org/'],
  ])('%s: scheme refused', async (url) => {
    await expect(safeFetch(url)).rejects.toEqual(rejects('scheme_refused'));
  });

  it.each([
    ['not a url'],
    ['/relative'],
    ['https://'],
    ['https://user@example.org/'],
    ['https://user:secret@example.org/'],
    ['https://:secret@example.org/'],
    ['https://[fe80::1%25eth0]/'],
  ])('%s: URL invalid', async (url) => {
    await expect(safeFetch(url)).rejects.toEqual(rejects('url_invalid'));
  });

  it('SafeFetchError does not contain secrets of the URL', async () => {
    const error = await safeFetch('https://user:secret@example.org/path?token=secret').catch(
      String,
    );
    expect(error).not.toContain('secret');
  });

  it('refuses methods and bodies as fetch does', async () => {
    await expect(safeFetch('https://a.test/', { method: 'CONNECT' })).rejects.toThrow(TypeError);
    await expect(safeFetch('https://a.test/', { body: 'x' })).rejects.toThrow(TypeError);
  });
});

describe('addresses off the public internet', () => {
  const safeFetch = createSafeFetch();

  it.each([
    ['127.0.0.1', 'loopback'],
    ['127.1', 'short loopback'],
    ['2130706433', 'decimal'],
    ['0177.0.0.1', 'octal'],
    ['0x7f.0x0.0x0.0x1', 'hex'],
    ['0x7f000001', 'hex in one number'],
    ['%31%32%37.0.0.1', 'percent-encoded'],
    ['①②⑦.⓪.⓪.①', 'full-width digits'],
    ['127.0.0.1.', 'trailing dot'],
    ['0', 'unspecified'],
    ['10.0.0.1', 'private'],
    ['172.16.0.1', 'private'],
    ['192.168.0.1', 'private'],
    ['169.254.1.1', 'link-local'],
    ['169.254.169.254', 'metadata'],
    ['2852039166', 'metadata in decimal'],
    ['100.64.0.1', 'carrier-grade NAT'],
    ['224.0.0.1', 'multicast'],
    ['255.255.255.255', 'broadcast'],
    ['[::]', 'unspecified'],
    ['[::1]', 'loopback'],
    ['[::ffff:127.0.0.1]', 'IPv4-mapped'],
    ['[::ffff:169.254.169.254]', 'IPv4-mapped metadata'],
    ['[::127.0.0.1]', 'IPv4-compatible'],
    ['[64:ff9b::127.0.0.1]', 'NAT64'],
    ['[2002:7f00:1::]', '6to4'],
    ['[2001:0:7f00:1::]', 'Teredo'],
    ['[fd00:ec2::254]', 'metadata'],
    ['[fe80::1]', 'link-local'],
    ['[ff02::1]', 'multicast'],
    ['localhost', 'a name for loopback'],
  ])('%s is refused (%s)', async (host) => {
    await expect(safeFetch(`http://${host}/`)).rejects.toEqual(rejects('address_refused'));
    await expect(safeFetch(`https://${host}:8443/`)).rejects.toEqual(rejects('address_refused'));
  });

  it('sends nothing to a refused address', async () => {
    let requests = 0;
    const { url } = await serve((_, response) => response.end(String(++requests)));
    await expect(safeFetch(url)).rejects.toEqual(rejects('address_refused'));
    expect(requests).toBe(0);
  });

  it.each([['host'], ['host:port'], ['CIDR']])('opens what a %s entry allows', async (kind) => {
    const { url, host } = await serve((_, response) => response.end('hello'));
    const entry = { host: '127.0.0.1', 'host:port': host, CIDR: '127.0.0.1/32' }[kind] ?? '';
    const response = await createSafeFetch({ allow: [entry] })(url);
    expect(await response.text()).toBe('hello');
  });

  it('createSafeFetch allows http only to allow-listed hosts', async () => {
    const lookup = async () => ['1.1.1.1'];
    const other = createSafeFetch({ allow: ['127.0.0.1'], lookup });
    await expect(other('http://public.example/')).rejects.toEqual(rejects('scheme_refused'));
  });

  it('refuses another port than the one allowed', async () => {
    const { url } = await serve((_, response) => response.end());
    const other = createSafeFetch({ allow: ['127.0.0.1:1'] });
    await expect(other(url)).rejects.toEqual(rejects('address_refused'));
  });
});

describe('names', () => {
  it.each(['localhost', '127.0.0.0/8'])('finds localhost where %s is allowed', async (entry) => {
    const { port } = await serve((_, response) => response.end('hello'));
    const response = await createSafeFetch({ allow: [entry] })(`http://localhost:${port}/`);
    expect(await response.text()).toBe('hello');
  });

  it('asks DNS once and connects to the address it checked', async () => {
    const checked = await serve((_, response) => response.end('checked'));
    const rebound = await serve((_, response) => response.end('rebound'), {
      address: '127.0.0.2',
      port: checked.port,
    });
    const asked: string[] = [];
    const safeFetch = createSafeFetch({
      allow: ['127.0.0.1/32'],
      lookup: async (name) => {
        asked.push(name);
        return [asked.length === 1 ? '127.0.0.1' : '127.0.0.2'];
      },
    });
    const response = await safeFetch(`http://rebind.test:${rebound.port}/`);
    expect(await response.text()).toBe('checked');
    expect(asked).toEqual(['rebind.test']);
    await expect(safeFetch(`http://rebind.test:${rebound.port}/`)).rejects.toEqual(
      rejects('address_refused'),
    );
  });

  it('refuses a public name that points inside', async () => {
    const lookup = async () => ['169.254.169.254'];
    const error = createSafeFetch({ lookup })('https://metadata.example/');
    await expect(error).rejects.toEqual(rejects('address_refused'));
  });

  it('refuses a name with one address inside among public ones', async () => {
    const lookup = async () => ['1.1.1.1', '2606:4700:4700::1111', '10.0.0.1'];
    await expect(createSafeFetch({ lookup })('https://mixed.example/')).rejects.toEqual(
      rejects('address_refused'),
    );
  });

  it.each([
    ['nothing', async () => []],
    ['no address', async () => ['elsewhere']],
    [
      'a failure',
      async () => {
        throw Object.assign(new Error('gone'), { code: 'ENOTFOUND' });
      },
    ],
  ])('calls DNS that answers %s a network failure', async (_, lookup) => {
    await expect(createSafeFetch({ lookup })('https://lost.example/')).rejects.toEqual(
      rejects('network'),
    );
  });

  it('times out when DNS never answers', async () => {
    const lookup = () => new Promise<string[]>(() => undefined);
    await expect(
      createSafeFetch({ lookup, timeoutMs: 20 })('https://slow.example/'),
    ).rejects.toEqual(rejects('timeout'));
  });
});
