import { existsSync, globSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MAIN } from './build.ts';

const page = readFileSync('docs/deploying.md', 'utf8');
const commands: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).scripts;

/** Whether it is in the checkout, or the build makes it. */
const isThere = (path: string) =>
  [path, path.replace('/dist/', '/src/').replace(/\.js$/, '.ts')].some((each) =>
    existsSync(each),
  ) || path === MAIN;

describe('the unit for systemd', () => {
  const unit = /```ini\n(.*?)```/s.exec(page)?.[1] ?? '';
  const setting = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)?.[1] ?? '';

  it('runs what the build makes with the Node that the install brings', () => {
    const [program = '', main] = setting('ExecStart').split(' ');
    expect(existsSync(relative(setting('WorkingDirectory'), program))).toBe(true);
    expect(main).toBe(MAIN);
  });

  it('keeps the data where the unit may write', () => {
    expect(setting('Environment')).toContain(`DATA_DIR=/var/lib/${setting('StateDirectory')} `);
  });
});

describe('the example for nginx', () => {
  const example = /```nginx\n(.*?)```/s.exec(page)?.[1] ?? '';
  const setting = (name: string) => new RegExp(`^\\s*${name} (.*);$`, 'm').exec(example)?.[1];

  it('passes the Host header on with its port', () => {
    expect(setting('proxy_set_header Host')).toBe('$http_host');
  });

  it('reuses connections to the host, and closes them before the host does', () => {
    const upstream = /^upstream (\w+) \{\n(.*?)^\}/ms.exec(example);
    expect(setting('proxy_pass')).toBe(`http://${upstream?.[1]}`);
    expect(upstream?.[2]).toMatch(/^\s*keepalive [1-9]\d*;$/m);
    expect(Number.parseInt(setting('keepalive_timeout') ?? '', 10)).toBeLessThan(75);
    expect(setting('proxy_http_version')).toBe('1.1');
    // A connection that is upgraded is not reused; any other has no Connection header.
    expect(setting('proxy_set_header Connection')).toBe('$connection_upgrade');
    expect(example).toContain("map $http_upgrade $connection_upgrade { default upgrade; '' ''; }");
  });

  it('lets headers of 32 kB pass', () => {
    expect(setting('large_client_header_buffers')).toBe('4 32k');
  });
});

describe('the Containerfile', () => {
  const file = readFileSync('Containerfile', 'utf8').replaceAll('\\\n', '');
  const instructions = file.split('\n').map((line) => line.trim().split(/\s+/));
  const all = (name: string) => instructions.filter(([each]) => each === name);

  it('copies folders that are there, to where they were', () => {
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

  it('starts what the build makes, as a user who owns its data alone', () => {
    expect(file).toContain(`CMD ["node", "${MAIN}"]`);
    expect(all('USER')).toEqual([['USER', 'node']]);
    expect(all('ENV').at(-1)).toContain(`DATA_DIR=${all('VOLUME')[0]?.[1]}`);
  });

  it('takes nothing along that was made or configured here', () => {
    const ignored = readFileSync('.dockerignore', 'utf8').split('\n');
    const secretOrMade = ['.env', 'data', '**/dist', '**/*.tsbuildinfo', '**/node_modules'];
    expect(ignored).toEqual(expect.arrayContaining(secretOrMade));
  });
});

it('every program that the page names is there once it is built', () => {
  const programs = [...page.matchAll(/packages\/[\w/-]+\.js\b/g)].map(([path]) => path);
  expect(programs).toContain(MAIN);
  expect(programs.filter((path) => !isThere(path))).toEqual([]);
});
