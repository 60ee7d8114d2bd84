import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { useOracle } from '../packages/web/test/support/oracle.ts';

/** The address in the docs; the tests replace it, since the port may be in use. */
const DOCUMENTED = 'http://127.0.0.1:3000';

const oracle = useOracle({ MODEL: 'offline', MODEL_BASE_URL: '' });
const home = mkdtempSync(join(tmpdir(), 'sibyl-examples-'));
afterAll(() => rmSync(home, { recursive: true, force: true }));

/** Page → its blocks that begin with "sh run", joined into one script. */
const scripts = ['README.md', 'CONTRIBUTING.md', ...globSync('docs/**/*.md')].flatMap((page) => {
  const blocks = readFileSync(page, 'utf8').matchAll(/```sh run\n(.*?)```/gs);
  const script = [...blocks].map(([, code = '']) => code).join('\n');
  return script ? [[page, script] as const] : [];
});

it('these pages have shell examples that run', () => {
  expect(scripts.map(([page]) => page).toSorted()).toEqual([
    'CONTRIBUTING.md',
    'README.md',
    'docs/cli.md',
    'docs/files.md',
    'docs/quickstart.md',
  ]);
});

it.each(scripts)(
  'the shell examples of %s work and print what they promise',
  { timeout: 120_000 },
  (_, script) => {
    const { PATH, HOME } = process.env;
    const { status, stdout, stderr } = spawnSync('bash', ['-euo', 'pipefail'], {
      input: script.replaceAll(DOCUMENTED, oracle.url),
      env: { PATH, HOME, XDG_CONFIG_HOME: home },
      encoding: 'utf8',
    });
    expect(status, stderr).toBe(0);
    const promised = [...script.matchAll(/# → (.+)$/gm)].map(([, text = '']) => text);
    expect(promised.filter((text) => !stdout.includes(text))).toEqual([]);
  },
);
