// Walks through the chat page in Firefox and in WebKit, as far as they are installed, with a real host and a model that
// the walk controls. Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type ControlledModel,
  startControlledModel,
} from '../packages/host/test/support/controlled-model.ts';
import {
  type Browser,
  find,
  findFirefox,
  hasWebKit,
  KEYS,
  startFirefox,
  startWebKit,
  type Tab,
} from './browsers/drivers.ts';
import { buildIfChanged } from './build.ts';
import { SKIPPED, startService } from './third-party.ts';

/** A host whose tool `send_letter` needs approval. */
const HOST = 'packages/web/test/support/post-process.ts';
const BOX = '.composer textarea';

/** Where a step happens. */
interface Walk {
  readonly browser: Browser;
  readonly tab: Tab;
  readonly model: ControlledModel;
  /** The address of the page. */
  readonly url: string;
  readonly folder: string;
}

const STEPS: readonly (readonly [name: string, step: (walk: Walk) => Promise<void>])[] = [
  ['the first visit creates an identity', arrive],
  ['a message is answered', converse],
  ['the page follows an answer with diagrams to its end', follow],
  ['an answer is stopped', stop],
  ['an answer continues after a reload', reload],
  ['a message is edited, and both versions are there', edit],
  ['a file is uploaded and sent', upload],
  ['the settings screens have no errors and fit', visitSettings],
  ['an action runs after a signed approval', approve],
  ['a second tab shows what the first one does', useTwoTabs],
  ['in Arabic, the message box shows its placeholder', useArabic],
];

async function main(): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-browsers-'));
  const wanted = [
    { name: 'Firefox', isInstalled: findFirefox() !== undefined, start: startFirefox },
    { name: 'WebKit', isInstalled: hasWebKit(), start: startWebKit },
  ];
  const installed = wanted.filter(({ isInstalled }) => isInstalled);
  if (installed.length > 0 && (await buildIfChanged()) !== 0) return 1;
  for (const { name, isInstalled } of wanted)
    if (!isInstalled) console.log(`${name} skipped: it is not installed`);
  if (installed.length === 0) return SKIPPED;
  const model = await startControlledModel();
  const env = { PORT: '0', DATA_DIR: join(folder, 'data'), ...model.env };
  const host = await startService([HOST], env);
  const place = { model, folder, url: `${host.url}/app` };
  let failures = 0;
  try {
    for (const { start } of installed) failures += await walk(await start({ folder }), place);
    if (findFirefox()) failures += await visitBlocked(place);
  } finally {
    await host.stop();
    model.close();
    rmSync(folder, { recursive: true, force: true });
  }
  return failures === 0 ? 0 : 1;
}

type Place = Omit<Walk, 'browser' | 'tab'>;

/** Returns the number of steps that failed; each begins where the one before it ended. */
async function walk(browser: Browser, place: Place): Promise<number> {
  let failures = 0;
  try {
    const all = { browser, tab: await browser.newTab(), ...place };
    for (const [name, step] of STEPS)
      failures += await attempt(`${browser.name}: ${name}`, all, step);
  } finally {
    await browser.close();
  }
  return failures;
}

/** The policy of the page blocks the styles that Mermaid inserts while it draws; those in the image apply. */
const BLOCKED = /style-src-(elem|attr)|too many CSP reports/;

async function attempt(name: string, walk: Walk, step: (walk: Walk) => Promise<void>) {
  const { model, browser } = walk;
  const before = (await browser.readErrors()).length;
  try {
    await step(walk);
    const errors = (await browser.readErrors()).slice(before).filter((each) => !BLOCKED.test(each));
    assert.deepEqual(errors, [], 'errors in the console');
    console.log(`✓ ${name}`);
    return 0;
  } catch (error) {
    console.log(`✗ ${name}\n`, error);
    return 1;
  } finally {
    model.discard();
  }
}

async function arrive({ tab, url }: Walk): Promise<void> {
  await tab.open(url);
  await tab.waitFor('h2', 'Welcome');
  await tab.open(`${url}#/settings/key`);
  await tab.waitFor('.page', 'In use');
}

async function write(tab: Tab, text: string): Promise<void> {
  await tab.click(BOX);
  await tab.type(`${text}${KEYS.enter}`);
}

/** Opens a new conversation and writes a message. */
async function start({ tab, url, model }: Walk, text: string) {
  await tab.open(url);
  await tab.waitFor(BOX);
  await write(tab, text);
  return model.next();
}

async function converse(walk: Walk): Promise<void> {
  const { tab } = walk;
  const turn = await start(walk, 'Good morning');
  assert.equal(turn.body.messages.at(-1).content, 'Good morning');
  turn.answer('Good morning **to you**');
  await tab.waitFor('.prose strong', 'to you');
  await tab.waitFor('.conv', 'Good morning');
  assert.equal(await tab.evaluate(`document.querySelector('${BOX}').value`), '');
}

const REST = `(({ scrollHeight, scrollTop, clientHeight }) =>
  scrollHeight - scrollTop - clientHeight)(document.querySelector('.scroll'))`;

async function follow(walk: Walk): Promise<void> {
  const { tab } = walk;
  const turn = await start(walk, 'Explain the water cycle');
  for (let part = 1; part <= 6; part += 1) {
    turn.say(`## Part ${part}\n\n${'Rain falls, and rivers carry it.\n\n'.repeat(8)}`);
    turn.say(
      `\`\`\`mermaid\ngraph TD; A${part}[Sea ${part}] --> B[Cloud]; B --> C[Rain]\n\`\`\`\n\n`,
    );
    await tab.waitUntil(`document.querySelectorAll('.diagram img').length === ${part}`);
    await tab.waitUntil(`${REST} <= 4`);
    assert.equal(await tab.evaluate(`document.querySelectorAll('.jump').length`), 0, 'jump');
  }
  turn.answer('That was **all of it**.');
  await tab.waitFor('.prose strong', 'all of it');
  await tab.waitUntil(`${REST} <= 4`);
  assert.equal(await tab.evaluate(`document.querySelectorAll('.jump').length`), 0, 'jump');
}

async function stop(walk: Walk): Promise<void> {
  const { tab } = walk;
  const turn = await start(walk, 'Write a story');
  turn.say('Once upon a time');
  await tab.waitFor('.prose', 'Once upon');
  await tab.click('button', 'Stop');
  await turn.left;
  await tab.waitFor('.msg', 'Answer stopped');
}

async function reload(walk: Walk): Promise<void> {
  const { tab } = walk;
  const turn = await start(walk, 'Write another story');
  turn.say('In the beginning');
  await tab.waitFor('.prose', 'In the beginning');
  await tab.waitUntil(`location.hash.length > 2`);
  await tab.open(await tab.evaluate('location.href.replace("/app", "/app?again")'));
  await tab.waitFor('.prose', 'In the beginning');
  turn.answer(' was the **word**');
  await tab.waitFor('.prose', 'In the beginning was the word');
}

async function edit(walk: Walk): Promise<void> {
  const { tab, model } = walk;
  const turn = await start(walk, 'Which trees grow on sand');
  turn.answer('Pines do');
  await tab.waitFor('.prose', 'Pines do');
  await tab.click('.msg-user button', 'Edit');
  await tab.waitFor('.edit-line');
  await tab.type(` and clay${KEYS.enter}`);
  const edited = await model.next();
  assert.equal(edited.body.messages.at(-1).content, 'Which trees grow on sand and clay');
  edited.answer('Oaks do');
  await tab.waitFor('.prose', 'Oaks do');
  await tab.waitFor('.branch', '2/2');
  await tab.click('button', 'Previous version');
  await tab.waitFor('.prose', 'Pines do');
}

async function upload(walk: Walk): Promise<void> {
  const { tab, url, folder, model } = walk;
  const path = join(folder, 'rivers.txt');
  writeFileSync(path, 'The Athi is a river.');
  await tab.open(url);
  await tab.waitFor(BOX);
  await tab.choose('.composer input[type=file]', path);
  await tab.waitFor('.composer .att', 'rivers.txt');
  await tab.waitUntil(`!document.querySelector('.composer progress')`);
  await write(tab, 'What does it say?');
  const turn = await model.next();
  assert.match(JSON.stringify(turn.body), /rivers\.txt/);
  turn.answer('It names a **river**');
  await tab.waitFor('.prose strong', 'river');
  await tab.waitFor('.msg-user', 'rivers.txt');
}

const SCREENS = [
  ...['key', 'permissions', 'approvals', 'memory', 'preferences'],
  ...['usage', 'activity', 'schedules', 'files', 'data'],
];

async function visitSettings({ tab, url }: Walk): Promise<void> {
  await tab.open(url);
  for (const width of [320, 1200]) {
    await tab.resize(width, 800);
    for (const screen of SCREENS) {
      await tab.evaluate(`void (location.hash = '#/settings/${screen}')`);
      await tab.waitUntil(`${find('.page h1')} && !${find('.page', 'Loading…')}`);
      const wide = await tab.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
      assert.ok(wide <= 0, `${screen} is wider than the window`);
    }
  }
}

async function approve(walk: Walk): Promise<void> {
  const { tab, model } = walk;
  const turn = await start(walk, 'Send a letter to Bob');
  turn.call({ name: 'send_letter', input: { to: 'Bob', copies: 2 } });
  await tab.click('.approval button', 'Approve');
  const after = await model.next();
  assert.equal(after.results.length, 1, JSON.stringify(after.body));
  after.answer('The letter is **on its way**');
  await tab.waitFor('.prose strong', 'on its way');
  await tab.evaluate(`void (location.hash = '#/settings/approvals')`);
  await tab.waitFor('.page', 'Bob');
}

async function useTwoTabs(walk: Walk): Promise<void> {
  const { tab, browser, url } = walk;
  const other = await browser.newTab();
  await other.open(url);
  const turn = await start(walk, 'Where is Nairobi');
  turn.say('Nairobi is');
  await tab.waitFor('.prose', 'Nairobi is');
  await other.evaluate(
    `void (location.hash = ${JSON.stringify(await tab.evaluate('location.hash'))})`,
  );
  await other.waitFor('.prose', 'Nairobi is');
  turn.answer(' in Kenya');
  for (const each of [tab, other]) await each.waitFor('.prose', 'Nairobi is in Kenya');
  await other.waitFor('.conv', 'Where is Nairobi');
}

async function useArabic({ tab, url }: Walk): Promise<void> {
  await tab.evaluate(`localStorage.setItem('sibyl-language', 'ar')`);
  await tab.open(`${url}?arabic`);
  await tab.waitUntil(`document.dir === 'rtl' && ${find(BOX)}`);
  const outside = `(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(${find(BOX)})`;
  assert.equal(await tab.evaluate(outside), 0);
}

/** Firefox refuses to store anything for the site. */
async function visitBlocked(place: Place): Promise<number> {
  const browser = await startFirefox({ folder: place.folder, blocksStorage: true });
  try {
    const all = { browser, tab: await browser.newTab(), ...place };
    return await attempt('Firefox: blocked storage is explained', all, async ({ tab, url }) => {
      await tab.open(url);
      await tab.waitFor('body', 'This browser can’t keep your key');
    });
  } finally {
    await browser.close();
  }
}

process.exitCode = await main();
