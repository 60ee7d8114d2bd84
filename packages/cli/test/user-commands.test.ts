import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { findProgram } from '../../../scripts/debian-programs.ts';
import { useOracle } from '../../web/test/support/oracle.js';
import { commands } from '../src/run.js';
import { MAIN, sibyl, sibylInProcess, startSibyl, useFolder } from './support/sibyl.js';

const oracle = useOracle();
const home = useFolder();
const env = { SIBYL_KEY_FILE: join(home, 'key'), SIBYL_URL: '' };
const call = (...args: string[]) =>
  sibylInProcess(args, { env: { ...env, SIBYL_URL: oracle.url } });
const callAsProcess = (...args: string[]) =>
  sibyl(args, { env: { ...env, SIBYL_URL: oracle.url } });
const callJson = async (...args: string[]) => JSON.parse((await call(...args, '--json')).stdout);

/** Sends a message that the model answers; returns the session. */
async function talk(message: string, answer: string): Promise<string> {
  const run = startSibyl(['chat', oracle.url, '-m', message], { env, input: '' });
  (await oracle.model.next()).answer(answer);
  expect(await run.ended).toBe(0);
  const { sessions } = await callJson('sessions', 'list', '--limit', '1');
  return sessions[0].sessionId;
}

describe('sibyl sessions', () => {
  it('lists, shows, renames, searches, exports and deletes', async () => {
    const id = await talk('Which soils store carbon?', 'Mostly **peat** and `chernozem`.');
    expect((await callAsProcess('sessions')).stdout).toContain(id);
    const shown = await call('sessions', 'show', id);
    expect(shown.stdout).toMatch(/^You .*\nWhich soils store carbon\?\n\n.*\nMostly \*\*peat\*\*/s);
    expect(await call('sessions', 'rename', id, 'Soils')).toMatchObject({
      code: 0,
      stdout: 'Renamed to Soils',
    });
    // Indexing is a separate job.
    await expect
      .poll(async () => (await call('sessions', 'search', 'chernozem')).stdout)
      .toContain(`Soils, session ${id}`);
    const file = join(home, 'soils.md');
    await call('sessions', 'export', id, '--out', file);
    expect(readFileSync(file, 'utf8')).toMatch(/^# Soils\n\n## You, .*## \w+, .*`chernozem`/s);
    const again = await call('sessions', 'export', id, '--out', file);
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('EEXIST') });
    const { session, messages } = await callJson('sessions', 'export', id);
    expect([session.title, messages.length]).toEqual(['Soils', 2]);
    expect(await call('sessions', 'delete', id)).toMatchObject({ code: 0, stdout: 'Deleted' });
    expect(await call('sessions', 'show', id)).toMatchObject({ code: 1, stdout: '' });
  });

  it('show renders Markdown and tool calls for a terminal', async () => {
    const run = startSibyl(['chat', oracle.url, '-m', 'Hi'], { env, input: '' });
    (await oracle.model.next()).call({ name: 'recall', input: { query: 'tea' } });
    (await oracle.model.next()).answer(
      '# Tea\n\n- **green**\n\n| a | b |\n|---|---|\n| 1 | 22 |\n',
    );
    expect(await run.ended).toBe(0);
    const { sessions } = await callJson('sessions', 'list', '--limit', '1');
    const { stdout } = await sibyl(['sessions', 'show', sessions[0].sessionId, oracle.url], {
      env: { ...env, FORCE_COLOR: '1' },
    });
    const bold = (inner: string) => `\u001b[1m${inner}\u001b[22m`;
    expect(stdout).toContain(`${bold('Tea')}\n\n• ${bold('green')}\n\n${bold('a  b')}\n1  22`);
    expect(stdout).toContain('✓ recall');
  });

  it('ends with its reader, without a stack', async () => {
    const id = await talk('Count', `${'one line\n'.repeat(20_000)}`);
    const child = spawn(
      'sh',
      ['-c', `"$0" "$@" | head -1`, process.execPath, MAIN, 'sessions', 'show', id],
      {
        env: { ...process.env, ...env, SIBYL_URL: oracle.url },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
    if (child.exitCode === null) await once(child, 'exit');
    expect({ stdout: stdout.slice(0, 3), stderr }).toEqual({ stdout: 'You', stderr: '' });
  });
});

/** All load what they need in the same way, so a few of each kind show what the others do. */
const closed = process.env.SIBYL_TEST_FULL
  ? commands.map(({ name }) => name)
  : ['sessions', 'chat', 'start', 'doctor'];

it.each(closed)(
  'sibyl %s ends quietly if its output is not read',
  async (name) => {
    const script = `{ sleep 0.2; "$0" "$1" "$2" --json; } 2>"$3" | true`;
    const errors = join(home, `closed-${name}`);
    const child = spawn('sh', ['-c', script, process.execPath, MAIN, name, errors], {
      env: {
        ...process.env,
        ...env,
        SIBYL_URL: oracle.url,
        DATA_DIR: join(home, 'none'),
        PORT: 'x',
        GATEWAY_PORT: 'x',
      },
      cwd: home,
      stdio: 'ignore',
    });
    await once(child, 'exit');
    const written = readFileSync(errors, 'utf8');
    expect(written).not.toMatch(/EPIPE|^ {4}at /m);
  },
  120_000,
);

it.runIf(existsSync('/dev/full'))('sibyl says that its output cannot be written', async () => {
  const child = spawn('sh', ['-c', `"$0" "$@" >/dev/full`, process.execPath, MAIN, 'key'], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const stderr = await text(child.stderr);
  if (child.exitCode === null) await once(child, 'exit');
  expect(child.exitCode).toBe(1);
  expect(stderr).toMatch(/^Cannot write the result: ENOSPC[^\n]*\n$/);
});

it.each([
  [['delegate', 'grant', '--can', 'store'], '--can must be an ability'],
  [['delegate', 'grant', '--can', 'Store/Put'], '--can must be an ability'],
  [['delegate', 'grant', '--can', 'store/*', '--with', 'mine'], '--with must be a URI'],
  [['delegate', 'grant', '--can', 'store/*', '--hours', '1e300'], '--hours must be'],
  [['schedules', 'add', 'x', '--message', 'x', '--in', '1h', '--days', '1e300'], '--days must be'],
])('sibyl %j is invalid usage', async (args, expected) => {
  const { code, stderr } = await call(...args);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(expected) });
});

it('sibyl rules adds, lists, removes and clears what the key signs', async () => {
  expect((await callAsProcess('rules')).stdout).toBe('No rules');
  await call('rules', 'ask', 'send_*');
  expect((await call('rules', 'block', 'plugin:slack')).stdout).toBe(
    'block  plugin:slack\nask    send_*',
  );
  expect((await callJson('rules', 'allow', 'send_*')).rules).toEqual([
    { match: 'send_*', effect: 'allow' },
    { match: 'plugin:slack', effect: 'block' },
  ]);
  expect((await call('rules', 'remove', 'send_*')).stdout).toBe('block  plugin:slack');
  expect(await call('rules', 'remove', 'send_*')).toMatchObject({ code: 1 });
  expect(await call('rules', 'ask', 'two words')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('must be a tool'),
  });
  await call('rules', 'clear');
  expect((await callJson('rules')).rules).toEqual([]);
});

it('sibyl files uploads, lists, downloads and deletes', async () => {
  const path = join(home, 'soil.txt');
  writeFileSync(path, 'Peat stores carbon.\n');
  const { fileId } = await callJson('files', 'upload', path);
  expect((await callAsProcess('files', 'list')).stdout).toMatch(
    new RegExp(`^${fileId}  soil\\.txt  20 B`),
  );
  const copy = join(home, 'copy.txt');
  await call('files', 'download', fileId, '--output', copy);
  expect(readFileSync(copy)).toEqual(readFileSync(path));
  expect((await call('files', 'download', fileId, '--output', '-')).stdout).toBe(
    'Peat stores carbon.',
  );
  expect((await call('files', 'delete', fileId)).stdout).toBe('Deleted');
  expect((await call('files', 'list')).stdout).toContain('You have no files');
  expect(await call('files', 'download', fileId)).toMatchObject({ code: 1, stdout: '' });
});

it.each([
  ['files upload', 'missing.txt', /Cannot read .*missing\.txt: ENOENT/],
  ['files upload', '.', /Cannot read .*: it is not a file/],
  ['import', 'missing.zip', /Cannot read .*missing\.zip: ENOENT/],
  ['import', '.', /Cannot read .*: it is not a file/],
  ['export', 'missing/mine.zip', /ENOENT.* open .*mine\.zip/],
])(
  'sibyl %s %s says what is wrong with the file, without a stack',
  async (command, path, reason) => {
    const { code, stderr } = await callAsProcess(...command.split(' '), join(home, path));
    expect([code, stderr.split('\n').length]).toEqual([1, 1]);
    expect(stderr).toMatch(reason);
  },
);

/** An oracle whose downloads do not end; resolves to its address and the download that is running. */
async function startEndlessOracle() {
  const downloads: ServerResponse[] = [];
  const server = createServer(({ url }, response) => {
    if (url?.startsWith('/.well-known')) response.end(JSON.stringify({ did: oracle.did }));
    else if (url?.endsWith('/info')) response.end(JSON.stringify({ name: 'soil.txt' }));
    else {
      response.write('only a part');
      downloads.push(response);
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, downloads };
}

describe.each([
  ['export', ['export', 'new.zip'], []],
  ['download', ['files', 'download', 'an-id'], []],
  ['download', ['files', 'download', 'an-id', '--output', 'mine.txt'], ['mine.txt']],
])('sibyl: %s that does not end, as %j', (name, args, before) => {
  it.each(['SIGINT', undefined] as const)('leaves files as they were (%s)', async (signal) => {
    const { url, downloads } = await startEndlessOracle();
    const cwd = join(home, `${name}-${args.length}-${signal}`);
    mkdirSync(cwd);
    for (const file of before) writeFileSync(join(cwd, file), 'before');
    const run = startSibyl(args, { env: { ...env, SIBYL_URL: url }, cwd, input: '' });
    const readParts = () => readdirSync(cwd).map((file) => readFileSync(join(cwd, file), 'utf8'));
    await expect.poll(readParts, { timeout: 60_000 }).toContain('only a part');
    if (signal) run.child.kill(signal);
    else downloads[0]?.destroy();
    expect(await run.ended).toBe(signal ? null : 1);
    if (!signal) expect(run.stderr).toBe(`The ${name} ended before it was complete: try again\n`);
    expect(readdirSync(cwd)).toEqual(before);
    for (const file of before) expect(readFileSync(join(cwd, file), 'utf8')).toBe('before');
  });
});

it('sibyl files download --output replaces a file and says that a download to - has ended', async () => {
  const { url, downloads } = await startEndlessOracle();
  const path = join(home, 'replaced.txt');
  writeFileSync(path, 'before');
  const save = startSibyl(['files', 'download', 'an-id', '--output', path], {
    env: { ...env, SIBYL_URL: url },
    input: '',
  });
  await expect.poll(() => downloads.length, { timeout: 60_000 }).toBe(1);
  downloads[0]?.end();
  expect(await save.ended).toBe(0);
  expect(readFileSync(path, 'utf8')).toBe('only a part');
  const print = startSibyl(['files', 'download', 'an-id', '--output', '-'], {
    env: { ...env, SIBYL_URL: url },
    input: '',
  });
  await expect.poll(() => print.stdout, { timeout: 60_000 }).toBe('only a part');
  downloads[1]?.destroy();
  expect(await print.ended).toBe(1);
  expect(print.stderr).toBe('The download ended before it was complete: try again\n');
});

it('sibyl memory adds, searches, changes, lists and forgets', async () => {
  const { id } = await callJson('memory', 'add', 'I grow barley');
  expect((await callAsProcess('memory', 'search', 'barley')).stdout).toContain(id);
  await call('memory', 'change', id, 'I grow oats');
  expect((await call('memory')).stdout).toMatch(new RegExp(`^${id}.* I grow oats$`));
  expect((await call('memory', 'forget', id)).stdout).toBe(`Forgot ${id}`);
  expect((await call('memory', 'list')).stdout).toBe('Nothing is remembered');
});

it('sibyl usage counts, sibyl export saves, sibyl erase erases, sibyl import restores', async () => {
  const id = await talk('Remember the harvest', 'It was 42 tons');
  const used = await callJson('usage');
  expect(used.total.turns).toBeGreaterThan(0);
  expect((await callAsProcess('usage')).stdout).toMatch(/^since .* turns? .* tokens/);
  const archive = join(home, 'mine.zip');
  expect((await callAsProcess('export', archive)).stdout).toMatch(/^Wrote .* bytes\)$/);
  expect(await call('export', archive)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('exists already'),
  });
  expect(await call('erase')).toMatchObject({ code: 2, stderr: expect.stringContaining('--yes') });
  expect((await callAsProcess('erase', '--yes')).stdout).toMatch(/^Erased \d+ rows/);
  expect((await call('sessions')).stdout).toBe('You have no sessions');
  expect((await callAsProcess('import', archive)).stdout).toMatch(/sessions +\d+ new/);
  expect((await call('sessions', 'show', id)).stdout).toContain('It was 42 tons');
});

describe('sibyl completion', () => {
  /** What the shell offers after a command line. */
  const complete = (line: string): string[] => {
    const words = line.split(' ');
    const script = [
      `source <("$1" "$2" completion bash)`,
      `COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}) COMP_CWORD=${words.length - 1}`,
      `_sibyl; printf '%s\\n' "\${COMPREPLY[@]}"`,
    ].join('\n');
    const { stdout } = spawnSync('bash', ['-c', script, 'bash', process.execPath, MAIN], {
      encoding: 'utf8',
    });
    return stdout.trim().split('\n');
  };

  it('completes commands, actions and options in bash', () => {
    expect(complete('sibyl se')).toEqual(['sessions']);
    expect(complete('sibyl sessions ')).toEqual([
      'list',
      'show',
      'rename',
      'delete',
      'export',
      'search',
    ]);
    expect(complete('sibyl chat --se')).toEqual(['--session']);
    expect(complete('sibyl chat --')).toContain('--json');
  });

  /** Types a line and two tabs into a zsh on a separate terminal; prints what appears, once that contains a text. */
  const ZSH = `
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "PS1=READY; autoload -Uz compinit; compinit -u -D; source $1; print LOADED"
    until [[ $seen == *LOADED*LOADED* ]]; do zpty -r shell more || break; seen+=$more; done
    zpty -w -n shell "$2"$'\\t\\t'
    seen= SECONDS=0
    until [[ $seen == *$3* ]] || ((SECONDS > 60)); do
      if zpty -rt shell more; then seen+=$more; else sleep 0.1; fi
    done
    zpty -d shell
    print -r -- $seen`;
  const shells = {
    zsh: (file: string, line: string, wanted: string) => [
      '-f',
      '-c',
      ZSH,
      'zsh',
      file,
      line,
      wanted,
    ],
    fish: (file: string, line: string) => ['-c', `source ${file}; complete -C '${line}'`],
  };

  it.each(['zsh', 'fish'] as const)(
    'completes commands, actions and options in %s',
    {
      timeout: 300_000,
    },
    async (shell) => {
      const program = findProgram(shell);
      const file = join(home, `shells.${shell}`);
      writeFileSync(file, (await sibylInProcess(['completion', shell])).stdout);
      const complete = (line: string, wanted: string) =>
        spawnSync(program, shells[shell](file, line, wanted), {
          encoding: 'utf8',
          env: { ...process.env, HOME: home, TERM: 'xterm' },
        }).stdout;
      expect(complete('sibyl docto', 'doctor')).toContain('doctor');
      const actions = complete('sibyl sessions ', 'show');
      for (const action of ['list', 'show', 'rename', 'delete', 'export', 'search'])
        expect(actions).toContain(action);
      expect(complete('sibyl chat --se', '--session')).toContain('--session');
    },
  );

  it.each([
    ['zsh', ['-n']],
    ['fish', ['--no-execute']],
  ] as const)('prints a script for %s with every command', async (shell, check) => {
    const { code, stdout } = await sibylInProcess(['completion', shell]);
    expect(code).toBe(0);
    for (const { name, summary } of commands) {
      expect(stdout).toContain(name);
      expect(withoutQuotes(stdout)).toContain(withoutQuotes(summary));
    }
    const file = join(home, `completion.${shell}`);
    writeFileSync(file, stdout);
    const { status, stderr } = spawnSync(findProgram(shell), [...check, file], {
      encoding: 'utf8',
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });
});

/** Each shell quotes in its own way. */
const withoutQuotes = (script: string) => script.replaceAll(/[\\']/g, '');

it.each([
  [['chta'], 'There is no command "chta". Did you mean "chat"?'],
  [['session'], 'Did you mean "sessions"?'],
  [['sessions', 'lsit'], 'There is no action "lsit". Did you mean "list"?'],
  [['chat', '--mesage', 'x'], 'Did you mean "--message"?'],
  [['xyzzy'], 'Run "sibyl --help"'],
])('sibyl %j says what was perhaps meant', async (args, expected) => {
  expect(await sibylInProcess(args, { env })).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(expected),
  });
});
