import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const PATHS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Finds Chromium for the tests; installs it on Debian as root. */
export function setup({ provide }: { provide(key: 'chromium', path: string): void }): void {
  provide('chromium', findChromium() ?? installChromium());
}

const findChromium = (): string | undefined =>
  [process.env.CHROMIUM_PATH ?? '', ...PATHS].find((path) => path && existsSync(path));

function installChromium(): string {
  process.stdout.write('Chromium not found: installing it for the tests of the page…\n');
  const quiet = { stdio: ['ignore', 'ignore', 'inherit'] as ['ignore', 'ignore', 'inherit'] };
  spawnSync('apt-get', ['update'], quiet);
  spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'chromium'], {
    ...quiet,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  const path = findChromium();
  if (path) return path;
  throw new Error('The tests of the page need Chromium: install it, or set CHROMIUM_PATH');
}

declare module 'vitest' {
  interface ProvidedContext {
    /** The path of Chromium. */
    chromium: string;
  }
}
