import { existsSync, globSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MAIN } from './build.ts';

const page = readFileSync('docs/deploying.md', 'utf8');
const commands: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).scripts;

/** Whether it is in the checkout, or the build writes it. */
const exists = (path: string) =>
  [path, path.replace('/dist/', '/src/').replace(/\.js$/, '.ts')].some((each) =>
    existsSync(each),
  ) || path === MAIN;

describe('docs/deploying.md: the systemd unit', () => {
  const unit = /```ini\n(\[Unit\].*?)```/s.exec(page)?.[1] ?? '';
  const setting = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)?.[1] ?? '';

  it('runs the built program with the Node of npm ci', () => {
    const [program = '', main] = setting('ExecStart').split(' ');
    expect(existsSync(relative(setting('WorkingDirectory'), program))).toBe(true);
    expect(main).toBe(MAIN);
  });

  it('stores data where the unit may write', () => {
    expect(setting('Environment')).toContain(`DATA_DIR=/var/lib/${setting('StateDirectory')} `);
  });
});

describe('docs/deploying.md: the nginx example', () => {
  const example = /```nginx\n(.*?)```/s.exec(page)?.[1] ?? '';
  const setting = (name: string) => new RegExp(`^\\s*${name} (.*);$`, 'm').exec(example)?.[1];

  it('passes on the Host header with its port', () => {
    expect(setting('proxy_set_header Host')).toBe('$http_host');
  });

  it('reuses connections to the host, and closes them before the host does', () => {
    const upstream = /^upstream (\w+) \{\n(.*?)^\}/ms.exec(example);
    expect(setting('proxy_pass')).toBe(`http://${upstream?.[1]}`);
    expect(upstream?.[2]).toMatch(/^\s*keepalive [1-9]\d*;$/m);
    expect(Number.parseInt(setting('keepalive_timeout') ?? '', 10)).toBeLessThan(75);
    expect(setting('proxy_http_version')).toBe('1.1');
    // Upgraded connections are not reused; others have no Connection header.
    expect(setting('proxy_set_header Connection')).toBe('$connection_upgrade');
    expect(example).toContain("map $http_upgrade $connection_upgrade { default upgrade; '' ''; }");
  });

  it('accepts headers of 32 kB', () => {
    expect(setting('large_client_header_buffers')).toBe('4 32k');
  });
});

describe('the timeouts of proxies exceed the default of TURN_MAX_SECONDS', () => {
  const [, seconds] = /^\| `TURN_MAX_SECONDS` \| `(\d+)` /m.exec(
    readFileSync('docs/configuration.md', 'utf8'),
  ) as RegExpExecArray;
  const timeout =
    /(?:proxy_read_timeout|timeout server|proxy-read-timeout:|response_header_timeout) "?(\w+)/g;
  const files = [
    'deploy/nginx.conf',
    'deploy/haproxy.cfg',
    'deploy/Caddyfile',
    'deploy/helm/sibyl/values.yaml',
  ];

  it.each([...files, ...globSync('docs/*.md')])('in %s', (path) => {
    const found = [...readFileSync(path, 'utf8').matchAll(timeout)].map(([, value = '']) => value);
    // Caddy waits by default.
    const expected = path === 'deploy/Caddyfile' ? 0 : files.includes(path) ? 1 : found.length;
    expect(found).toHaveLength(expected);
    for (const value of found) {
      expect(value).toMatch(/^\d+s?$/);
      expect(Number.parseInt(value, 10)).toBeGreaterThan(Number(seconds));
    }
  });

  it('in every example of docs/deploying.md that has one by default', () => {
    for (const [, example] of page.matchAll(/```nginx\n(.*?)```/gs))
      expect(example).toContain('proxy_read_timeout');
  });
});

describe('Containerfile', () => {
  const file = readFileSync('Containerfile', 'utf8').replaceAll('\\\n', '');
  const instructions = file.split('\n').map((line) => line.trim().split(/\s+/));
  const all = (name: string) => instructions.filter(([each]) => each === name);

  it('copies folders that exist, to the same place', () => {
    const copied = all('COPY').filter(([, from]) => from === '--from=build');
    expect(copied.length).toBeGreaterThan(0);
    for (const [, , from, to = ''] of copied) {
      expect(from).toBe(`/sibyl/${to}`);
      expect(existsSync(to), to).toBe(true);
    }
  });

  it('runs scripts and workspaces that exist', () => {
    const names = globSync('packages/*/package.json').map(
      (path) => JSON.parse(readFileSync(path, 'utf8')).name,
    );
    const wanted = [...file.matchAll(/--workspace=(\S+)/g)].map(([, name]) => name);
    expect(names).toEqual(expect.arrayContaining(wanted));
    for (const [, script = ''] of file.matchAll(/npm run (\S+)/g))
      expect(commands).toHaveProperty(script);
  });

  it('starts the built program as an unprivileged user who owns only the data', () => {
    expect(file).toContain(`CMD ["node", "${MAIN}"]`);
    expect(all('USER')).toEqual([['USER', 'node']]);
    expect(all('ENV').at(-1)).toContain(`DATA_DIR=${all('VOLUME')[0]?.[1]}`);
  });

  it('excludes build output, data and secrets', () => {
    const ignored = readFileSync('.dockerignore', 'utf8').split('\n');
    const secretOrMade = ['.env', 'data', '**/dist', '**/*.tsbuildinfo', '**/node_modules'];
    expect(ignored).toEqual(expect.arrayContaining(secretOrMade));
  });
});

it('docs/deploying.md names only programs that exist after the build', () => {
  const programs = [...page.matchAll(/packages\/[\w/-]+\.js\b/g)].map(([path]) => path);
  expect(programs).toContain(MAIN);
  expect(programs.filter((path) => !exists(path))).toEqual([]);
});
