import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { useOracle } from '../../web/test/support/oracle.js';
import { startSibyl, useFolder } from './support/sibyl.js';

const oracle = useOracle({}, join(import.meta.dirname, '../../web/test/support/asking-process.ts'));
const home = useFolder();
const env = { SIBYL_KEY_FILE: join(home, 'key') };

it('sends one message and writes the answer', async () => {
  const run = startSibyl(['chat', oracle.url, '-m', 'Hello'], { env, input: '' });
  const turn = await oracle.model.next();
  turn.call({ name: 'recall', input: { query: 'hello' } });
  const after = await oracle.model.next();
  after.say('Hi \u001b[31mthere');
  after.finish();
  expect(await run.ended).toBe(0);
  expect(run.stdout).toContain('⚙ recall');
  expect(run.stdout).toContain('Hi [31mthere');
  expect(run.stdout).not.toContain('\u001b');
});

it('sends one message and writes the reply as JSON', async () => {
  const run = startSibyl(['chat', oracle.url, '-m', 'Hello', '--json'], { env, input: '' });
  (await oracle.model.next()).answer('Hi');
  expect(await run.ended).toBe(0);
  expect(JSON.parse(run.stdout)).toMatchObject({ message: { content: 'Hi' } });
});

it('ends the turn with the command on Ctrl-C', async () => {
  const run = startSibyl(['chat', oracle.url, '-m', 'Count without end'], { env, input: '' });
  const turn = await oracle.model.next();
  turn.say('On and on');
  await expect.poll(() => run.stdout).toContain('On and on');
  run.child.kill('SIGINT');
  await turn.left;
  expect(await run.ended).toBe(1);
  expect(run.stdout).toContain('(aborted)');
});

it('--json ends the turn on Ctrl-C too; the exit code is 1 for a turn that did not finish', async () => {
  const args = ['chat', oracle.url, '-m', 'Count without end', '--json'];
  const run = startSibyl(args, { env, input: '' });
  const turn = await oracle.model.next();
  turn.say('On and on');
  run.child.kill('SIGINT');
  await turn.left;
  expect(await run.ended).toBe(1);
  expect(JSON.parse(run.stdout)).toMatchObject({ status: 'aborted' });
});

it('--json without --message is refused before a session is created', async () => {
  const run = startSibyl(['chat', oracle.url, '--json'], { env, input: 'one\n' });
  expect(await run.ended).toBe(2);
  expect(run).toMatchObject({ stdout: '', stderr: expect.stringContaining('--message') });
});

it('answers every line of a pipe, without a prompt', async () => {
  const run = startSibyl(['chat', oracle.url], { env, input: 'one\ntwo\n' });
  for (const number of ['1', '2']) (await oracle.model.next()).answer(`That is ${number}.`);
  expect(await run.ended).toBe(0);
  expect(run.stdout).toBe('That is 1.\nThat is 2.\n');
  expect(run.stderr).toMatch(/^Talking to .*\n$/);
});

it('stops the answer on Ctrl-C, and leaves on the next', async () => {
  const run = startSibyl(['chat', oracle.url], { env });
  await expect.poll(() => run.stderr).toContain('Talking to');
  run.child.stdin?.write('Count without end\n');
  const turn = await oracle.model.next();
  turn.say('On and on');
  await expect.poll(() => run.stdout).toContain('On and on');
  run.child.kill('SIGINT');
  await turn.left;
  await expect.poll(() => run.stdout).toContain('(aborted)');
  run.child.kill('SIGINT');
  expect(await run.ended).toBe(0);
});

it('runs /help, /model, /attach, /retry and /new of a conversation', async () => {
  const path = join(home, 'harvest.txt');
  writeFileSync(path, 'The harvest was 42 tons.');
  const run = startSibyl(['chat', oracle.url], { env });
  const enter = (line: string) => run.child.stdin?.write(`${line}\n`);
  const shows = (text: string) => expect.poll(() => run.stdout + run.stderr).toContain(text);
  enter('/help');
  await shows('/attach <path>');
  enter('/hlep');
  await shows('Did you mean "/help"?');
  enter('/retry');
  await shows('nothing to retry');
  enter('/model');
  await shows('* ');
  enter('/model none');
  await shows('The oracle does not have the model "none"');
  const id = /\* (\S+)/.exec(run.stdout)?.[1] ?? '';
  enter(`/model ${id}`);
  await shows(`${id} answers from now on`);
  enter('/attach missing.txt');
  await shows('Cannot read missing.txt: ENOENT');
  enter(`/attach ${path}`);
  await shows('harvest.txt goes with the next message');
  enter('//How much?');
  const turn = await oracle.model.next();
  expect(JSON.stringify(turn.body)).toContain('The harvest was 42 tons.');
  expect(JSON.stringify(turn.body)).toContain('/How much?');
  turn.answer('Forty-two.');
  await shows('Forty-two.');
  enter('/retry');
  (await oracle.model.next()).answer('42 tons.');
  await shows('42 tons.');
  enter('/new');
  await expect.poll(() => run.stderr.match(/[Ss]ession \S+/g)?.length).toBe(2);
  enter('/quit');
  expect(await run.ended).toBe(0);
});

it('--attach and --model apply to --message', async () => {
  const path = join(home, 'rain.txt');
  writeFileSync(path, 'It rained 80 mm in May.');
  const args = ['chat', oracle.url, '-m', 'How much rain?', '--attach', path];
  const run = startSibyl(args, { env, input: '' });
  const turn = await oracle.model.next();
  expect(JSON.stringify(turn.body)).toContain('80 mm');
  turn.answer('80 mm');
  expect(await run.ended).toBe(0);
  const wrong = startSibyl([...args, '--model', 'none'], { env, input: '' });
  expect(await wrong.ended).toBe(1);
  expect(wrong.stderr).toContain('The oracle does not have the model "none"');
  const empty = startSibyl(['chat', oracle.url, '-m', ' '], { env, input: '' });
  expect(await empty.ended).toBe(2);
  // A mistake leaves no empty session behind.
  const list = startSibyl(['sessions', oracle.url], { env, input: '' });
  expect(await list.ended).toBe(0);
  expect(list.stdout.split('\n')[0]).toContain('How much rain?');
});

it('shows Markdown while it arrives', async () => {
  const run = startSibyl(['chat', oracle.url, '-m', 'Hello'], {
    env: { ...env, FORCE_COLOR: '1' },
    input: '',
  });
  const turn = await oracle.model.next();
  turn.say('A **bo');
  await expect.poll(() => run.stdout).toContain('A ');
  expect(run.stdout).not.toContain('bo');
  turn.say('ld** word and 2 * 3, [here](https://example.org) `x`');
  await expect.poll(() => run.stdout).toContain('\u001b[1mbold\u001b[22m word and 2 * 3');
  turn.say('\n```js\nlet a;\n```\n');
  turn.finish();
  expect(await run.ended).toBe(0);
  expect(run.stdout).toContain(
    '\u001b[4mhere\u001b[24m (https://example.org) \u001b[36mx\u001b[39m',
  );
  expect(run.stdout).toContain('\n  \u001b[36mlet a;\u001b[39m\n');
});

it('shows the question of a tool, and /answer continues the turn', async () => {
  const run = startSibyl(['chat', oracle.url], { env });
  const enter = (line: string) => run.child.stdin?.write(`${line}\n`);
  const shows = (text: string) => expect.poll(() => run.stdout + run.stderr).toContain(text);
  enter('/answer yes');
  await shows('No question waits for an answer');
  enter('Book a table, and order');
  const turn = await oracle.model.next();
  turn.call({ name: 'book_table', input: {} });
  await shows('? Book a table?\n  /answer yes, or /answer no;');
  enter('/answer perhaps');
  await shows('This does not answer the question. Write /answer yes, or /answer no');
  enter('/answer yes');
  (await oracle.model.next()).call({ name: 'order_meal', input: {} });
  await shows('✓ book_table booked');
  await shows(
    '/answer {"dish": <Soup or Salad>, "people": <number>}, optionally with "note": <string>;',
  );
  enter('/answer {"dish": "Soup", "people": 0}');
  await shows('people: expected at least 1');
  enter('/answer {"dish": "Soup", "people": 2}');
  (await oracle.model.next()).answer('Enjoy your meal.');
  await shows('Enjoy your meal.');
  enter('/quit');
  expect(await run.ended).toBe(0);
});

it('shows the question that --message ended with again when the session continues', async () => {
  const first = startSibyl(['chat', oracle.url, '-m', 'Book a table'], { env, input: '' });
  (await oracle.model.next()).call({ name: 'book_table', input: {} });
  expect(await first.ended).toBe(1);
  const [, command = ''] = /Answer in: sibyl (.+)/.exec(first.stderr) ?? [];
  const run = startSibyl(command.split(' '), { env, input: '/answer no\n' });
  (await oracle.model.next()).answer('As you like.');
  expect(await run.ended).toBe(0);
  expect(run.stdout).toMatch(/^\? Book a table\?\n.*✓ book_table not booked\nAs you like\.\n$/s);
});

it('/answer answers the question that was shown, and shows another one instead of answering it', async () => {
  const run = startSibyl(['chat', oracle.url], { env });
  const enter = (line: string) => run.child.stdin?.write(`${line}\n`);
  const shows = (text: string) => expect.poll(() => run.stdout + run.stderr).toContain(text);
  enter('Book a table, and insure the trip');
  const turn = await oracle.model.next();
  turn.call({ name: 'book_table', input: {} }, { name: 'insure', input: {} });
  await shows('? Book a table?\n');
  const [, session = ''] = /session (\S+)\./.exec(run.stderr) ?? [];
  const elsewhere = startSibyl(['chat', oracle.url, '-s', session], { env, input: '/answer no\n' });
  expect(await elsewhere.ended).toBe(0);
  expect(elsewhere.stdout).toContain('? A tool asks you a question: isInsured\n');
  enter('/answer yes');
  await shows('Your answer was not sent. The question is now:\n');
  await shows('? A tool asks you a question: isInsured\n');
  enter('/answer no');
  const after = await oracle.model.next();
  expect(JSON.stringify(after.body)).toContain('not booked');
  expect(JSON.stringify(after.body)).toMatch(/isInsured\W+false/);
  after.answer('As you like.');
  await shows('As you like.');
  enter('/quit');
  expect(await run.ended).toBe(0);
});
