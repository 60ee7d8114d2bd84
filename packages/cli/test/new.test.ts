import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { killProcessGroup } from './support/kill-process-group.js';
import { MAIN, sibyl, useFolder } from './support/sibyl.js';

const home = useFolder();
const packages = join(home, 'packages');
mkdirSync(packages);
writeFileSync(join(packages, 'sibyl-host-0.1.0.tgz'), '');

/** A PATH with this npm. */
function makeNpm(name: string, script: string): string {
  const bin = join(home, name);
  mkdirSync(bin);
  writeFileSync(join(bin, 'npm'), `#!/bin/sh\n${script}`, { mode: 0o755 });
  return [bin, process.env.PATH].join(delimiter);
}

/** An npm that no signal but SIGKILL ends, and that writes files again that were removed; not forever, in case that nothing ends it. */
const busyNpm = (folder: string) => `
trap '' INT HUP TERM
exec 2> /dev/null
for word in "$@"; do case "$word" in
  --pack-destination=*) : > "\${word#*=}/sibyl-host-0.1.0.tgz"; exit;;
esac; done
echo $$ > '${home}/${folder}.pid'
i=0
while [ $i -lt 50000 ]; do
  i=$((i + 1))
  [ -d node_modules/half ] || mkdir -p node_modules/half
  echo > node_modules/half/$i
done
`;

/** Starts `sibyl new` as a terminal does: in a process group that receives Ctrl-C. */
function startNew(args: readonly string[], PATH = process.env.PATH) {
  const child = spawn(process.execPath, [MAIN, 'new', ...args], {
    cwd: home,
    env: { ...process.env, PATH },
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  });
  onTestFinished(() => killProcessGroup(child));
  return { child, stderr: text(child.stderr), ended: once(child, 'close') };
}

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

const waitForFile = (path: string) =>
  expect.poll(() => existsSync(path), { interval: 5, timeout: 60_000 }).toBe(true);

describe('sibyl new', () => {
  it('writes a project with its name in it', async () => {
    const { code, stdout } = await sibyl(['new', 'my-oracle', '--no-install'], { cwd: home });
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('npm install') });
    expect(existsSync(join(home, 'my-oracle/.gitignore'))).toBe(true);
    // Keys of model providers are going to be in it.
    expect(statSync(join(home, 'my-oracle/.env')).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(home, 'my-oracle/.env'), 'utf8')).toContain('ORACLE_NAME=my-oracle');
    const again = await sibyl(['new', 'my-oracle'], { cwd: home });
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('there already') });
    expect(existsSync(join(home, 'my-oracle/.gitignore'))).toBe(true);
  });

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const)(
    'new leaves nothing behind if %s ends it before the files are written',
    async (signal, code) => {
      const name = `ended-by-${signal.toLowerCase()}`;
      const { child, stderr, ended } = startNew([name, '--no-install']);
      await waitForFile(join(home, name));
      process.kill(-Number(child.pid), signal);
      expect(await ended).toEqual([code, null]);
      expect(await stderr).toBe(`Removed ${join(home, name)}: run "sibyl new" again\n`);
      expect(readdirSync(home).filter((each) => each.includes(name))).toEqual([]);
    },
  );

  it('new says how to install what Ctrl-C has left out, and leaves neither a part of it nor npm; a second Ctrl-C changes nothing', async () => {
    const project = join(home, 'stopped');
    const { child, stderr, ended } = startNew(
      ['stopped', '--packages', packages],
      makeNpm('busy', busyNpm('stopped')),
    );
    // As many as take a while to remove.
    await waitForFile(join(project, 'node_modules/half/10000'));
    const npm = Number(readFileSync(join(home, 'stopped.pid'), 'utf8'));
    process.kill(-Number(child.pid), 'SIGINT');
    await expect.poll(() => readdirSync(project), { interval: 1 }).not.toContain('node_modules');
    child.kill('SIGINT');
    expect(await ended).toEqual([130, null]);
    expect(isRunning(npm)).toBe(false);
    expect(await stderr).toMatch(/^(\w+…\n)*Not installed: run "npm install" in .*\/stopped\n$/);
    expect(readdirSync(project).filter((name) => name.includes('node_modules'))).toEqual([]);
    expect(existsSync(join(project, 'package.json'))).toBe(true);
  });

  it('new leaves neither a part of what it installs nor npm if its output is closed', async () => {
    const { child, stderr, ended } = startNew(
      ['unread', '--packages', packages],
      makeNpm('unread-bin', busyNpm('unread')),
    );
    await waitForFile(join(home, 'unread/node_modules/half'));
    stderr.catch(() => undefined);
    child.stderr.destroy();
    expect(await ended).toEqual([0, null]);
    // If npm still ran, it would write there again.
    expect(existsSync(join(home, 'unread/node_modules'))).toBe(false);
  });

  it('new of a checkout removes the project if Ctrl-C ends its installation, which npm alone could not repeat', {
    timeout: 120_000,
  }, async () => {
    const { child, stderr, ended } = startNew(['own'], makeNpm('packing', busyNpm('own')));
    await waitForFile(join(home, 'own/node_modules'));
    process.kill(-Number(child.pid), 'SIGINT');
    expect(await ended).toEqual([130, null]);
    expect(await stderr).toContain(`Removed ${join(home, 'own')}: run "sibyl new" again\n`);
    expect(readdirSync(home).filter((name) => /^\.?own/.test(name))).toEqual([]);
  });

  it('new shows why the checkout cannot be packed, and what to run again', async () => {
    const PATH = makeNpm('failing', 'echo No space left\nexit 1\n');
    const { code, stderr } = await sibyl(['new', 'unpacked'], { cwd: home, env: { PATH } });
    expect(code).toBe(1);
    expect(stderr).toMatch(/No space left\n.+ failed: fix the cause, then run "sibyl new" again/);
    expect(existsSync(join(home, 'unpacked'))).toBe(false);
  });

  it('new without npm says that it is missing', async () => {
    const args = ['new', 'alone', '--packages', packages];
    const env = { PATH: join(home, 'nowhere') };
    const { code, stderr } = await sibyl(args, { cwd: home, env });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^npm install .+ failed \(spawn npm ENOENT\): fix the cause, then run/);
  });

  it('leaves nothing behind where the packages are not', async () => {
    const args = ['new', 'other', '--packages', join(home, 'nowhere')];
    const { code, stderr } = await sibyl(args, { cwd: home });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('nowhere') });
    expect(existsSync(join(home, 'other'))).toBe(false);
  });
});
