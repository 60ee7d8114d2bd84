import { join } from 'node:path';
import { expect, it } from 'vitest';
import { useOracle } from '../../web/test/support/oracle.js';
import { startSibyl, useFolder } from './support/sibyl.js';

const oracle = useOracle();
const env = { SIBYL_KEY_FILE: join(useFolder(), 'key') };

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

it('answers every line of a pipe', async () => {
  const run = startSibyl(['chat', oracle.url], { env, input: 'one\ntwo\n' });
  for (const number of ['1', '2']) (await oracle.model.next()).answer(`That is ${number}.`);
  expect(await run.ended).toBe(0);
  expect(run.stdout).toMatch(/That is 1\.\n.*That is 2\.\n/s);
});

it('stops the answer on Ctrl-C, and leaves on the next', async () => {
  const run = startSibyl(['chat', oracle.url], { env });
  await expect.poll(() => run.stdout).toContain('> ');
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
