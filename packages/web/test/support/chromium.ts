import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Sees that there is a Chromium to test with; on Debian as root it is installed, elsewhere asked for. */
export function setup({ provide }: { provide(key: 'chromium', path: string): void }): void {
  provide('chromium', findChromium() ?? installChromium());
}

const findChromium = (): string | undefined =>
  [process.env.CHROMIUM_PATH ?? '', ...PLACES].find((path) => path && existsSync(path));

function installChromium(): string {
  process.stdout.write('No Chromium here: installing Debian’s for the tests of the page…\n');
  const quiet = { stdio: ['ignore', 'ignore', 'inherit'] as ['ignore', 'ignore', 'inherit'] };
  spawnSync('apt-get', ['update'], quiet);
  spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'chromium'], {
    ...quiet,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  const path = findChromium();
  if (path) return path;
  throw new Error('The tests of the page need Chromium: install it, or set CHROMIUM_PATH to one');
}

declare module 'vitest' {
  interface ProvidedContext {
    /** Where Chromium is. */
    chromium: string;
  }
}
