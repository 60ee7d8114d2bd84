import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const CARELESS = join(import.meta.dirname, 'support/careless-process.ts');

let dataDir: string;
let model: ControlledModel;
beforeAll(async () => {
  dataDir = mkdtempSync(join(tmpdir(), 'sibyl-unhandled-'));
  model = await startControlledModel();
});
afterAll(() => {
  model.close();
  rmSync(dataDir, { recursive: true, force: true });
});

async function start(): Promise<HostProcess & { readonly url: string; readonly did: string }> {
  const host = runHost({ PORT: '0', DATA_DIR: dataDir, ...model.env }, [], CARELESS);
  const url = await untilListening(host);
  const { did } = await (await fetch(`${url}/.well-known/oracle.json`)).json();
  return { ...host, url, did };
}

it('serve logs an unhandled rejection of a plugin and continues', async () => {
  const host = await start();
  const user = new TestUser(host);
  const sessionId = await openSession(user);
  const reply = user.request('POST', `/messages/${sessionId}`, { body: { message: 'Go' } });
  (await model.next()).call({ name: 'leave_failure', input: {} });
  const after = await model.next();
  after.say('All well');
  after.finish();
  expect((await reply).body.message.content).toBe('All well');
  expect(host.output()).toContain('left behind');
  host.child.kill('SIGTERM');
  expect(await host.ended).toBe(0);
});

it('serve stores running turns and ends after an uncaught exception of a plugin', async () => {
  const host = await start();
  const user = new TestUser(host);
  const sessionId = await openSession(user);
  const live = await stream(user, sessionId, { message: 'Go' });
  const turn = await model.next();
  turn.say('Half an ');
  await live.untilEvent('message');
  host.child.kill('SIGUSR2');
  expect((await live.toEnd()).at(-1)?.data).toMatchObject({
    status: 'interrupted',
    partialText: 'Half an ',
  });
  expect(await host.ended).toBe(1);
  const fatal = host.output().match(/.*"level":"fatal".*/g) ?? [];
  expect(fatal).toHaveLength(1);
  expect(fatal[0]).toContain('thrown in a timer');
  expect(fatal[0]).toContain('ending with code 1');

  const next = await start();
  const { body } = await user.at(next).request('GET', `/messages/${sessionId}`);
  expect(body.messages).toMatchObject([
    { type: 'human', content: 'Go' },
    { type: 'ai', content: 'Half an ', isComplete: false },
  ]);
  next.child.kill('SIGTERM');
  expect(await next.ended).toBe(0);
});
