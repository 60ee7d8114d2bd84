import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

/** Chromium without windows: it needs less processor time than the browser with `--headless`. */
const SHELL = '/usr/bin/chromium-headless-shell';
const BROWSERS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

export function setup({ provide }: { provide(key: 'chromium', path: string): void }): void {
  provide('chromium', findChromium());
}

/** Finds Chromium for the tests; installs it on Debian as root. */
export function findChromium(): string {
  const path = find(process.env.CHROMIUM_PATH ?? '', SHELL) ?? install() ?? find(...BROWSERS);
  if (path) return path;
  throw new Error('The tests of the page need Chromium: install it, or set CHROMIUM_PATH');
}

const find = (...paths: string[]): string | undefined => paths.find((path) => existsSync(path));

function install(): string | undefined {
  process.stdout.write(`${SHELL} not found: installing it for the tests of the page…\n`);
  const quiet = { stdio: ['ignore', 'ignore', 'inherit'] as ['ignore', 'ignore', 'inherit'] };
  spawnSync('apt-get', ['update'], quiet);
  spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'chromium-headless-shell'], {
    ...quiet,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  return find(SHELL);
}

declare module 'vitest' {
  interface ProvidedContext {
    /** The path of Chromium. */
    chromium: string;
  }
}
