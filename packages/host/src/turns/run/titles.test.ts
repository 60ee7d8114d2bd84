import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { RecordingMeter } from '../../../test/support/agent/recording-meter.js';
import { finish, ScriptedModel, say } from '../../../test/support/agent/scripted-model.js';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import { unmetered } from '../../agent/agent.js';
import { type Session, type SessionStore, UNTITLED } from '../../store/session-store.js';
import { Titles } from './titles.js';

const test = useStore('sqlite');
afterEach(() => {
  vi.restoreAllMocks();
});

const openSession = (title?: string) =>
  test.store.sessions.create({ owner: newOwner(), oracleDid: 'did:o', title });

const findTitle = async ({ owner, sessionId }: Session) =>
  (await test.store.sessions.get({ owner, sessionId })).title;

/** Titles by a model that follows a script, and what they publish and log. */
function createTitles(model: ScriptedModel, sessions: SessionStore = test.store.sessions) {
  const log: Record<string, unknown>[] = [];
  const logger = pino({ base: null }, { write: (line) => void log.push(JSON.parse(line)) });
  const publish = vi.fn();
  return { titles: new Titles({ sessions, changes: { publish }, model, logger }), publish, log };
}

/** A model that says one thing, or fails. */
const modelSaying = (text: string | Error) =>
  new ScriptedModel(() => {
    if (text instanceof Error) throw text;
    return say(text);
  });

/** A model that answers any number of calls when it is released. */
function createWaitingModel() {
  const released = Promise.withResolvers<void>();
  async function* step() {
    await released.promise;
    yield* say('By the model');
  }
  return { model: new ScriptedModel(...Array(300).fill(step)), release: released.resolve };
}

async function titleFrom(said: string | Error, question: string, title?: string): Promise<string> {
  const session = await openSession(title);
  const { titles } = createTitles(modelSaying(said));
  await titles.nameSession(session, { question, answer: 'because' }, unmetered);
  return findTitle(session);
}

const QUESTION = 'how much carbon can soil hold';
const exchange = { question: QUESTION, answer: 'because' };

describe('Titles names a session', () => {
  it.each([
    ['by the model', 'Soil carbon in Kenya', 'Soil carbon in Kenya'],
    ['without its quotes and full stop', '"Soil carbon."\n\nHope that helps', 'Soil carbon'],
    ['without a heading', '\n ## «Soil carbon» ', 'Soil carbon'],
    ['without other quotes', `“'Soil carbon'”`, 'Soil carbon'],
    ['with quotes and stops inside of it', 'Dr. "Soil" carbon', 'Dr. "Soil" carbon'],
    ['by the first words when the model fails', new Error('away'), QUESTION],
    ['by the first words when it says nothing', '  ', QUESTION],
    ['by the first words when only quotes are left', '"."', QUESTION],
    ['with as many characters as fit', 'x'.repeat(60), 'x'.repeat(60)],
    ['within bounds', 'x'.repeat(61), `${'x'.repeat(59)}…`],
    ['without half a character', '🌱'.repeat(60), '🌱'.repeat(60)],
  ])('%s', async (_, said, expected) => {
    expect(await titleFrom(said, QUESTION)).toBe(expected);
  });

  it.each([
    [
      'without the comma after them',
      'Compare the rain in Kitui, Machakos and Makueni, please',
      'Compare the rain in Kitui, Machakos and Makueni',
    ],
    ['without the dash after them', 'Soil – ', 'Soil'],
    ['with a dash inside of them', 'Soil – carbon', 'Soil – carbon'],
    ['of at most eight', ' a  b\nc d\te f g h i', 'a b c d e f g h'],
    ['within bounds', 'x'.repeat(100), `${'x'.repeat(59)}…`],
    ['if there are any', ' ,;: ', UNTITLED],
  ])('by the first words %s', async (_, question, expected) => {
    expect(await titleFrom('', question)).toBe(expected);
  });

  it('without reading a long answer to its end or waiting long', async () => {
    expect(await titleFrom(`a${'.'.repeat(200_000)}b`, 'question')).toBe(`a`);
    let parts = 0;
    const model = new ScriptedModel(function* () {
      while (parts < 100) {
        parts += 1;
        yield { type: 'text', text: 'word '.repeat(10) };
      }
      yield finish();
    });
    const session = await openSession();
    await createTitles(model).titles.nameSession(session, exchange, unmetered);
    // 200 characters are enough.
    expect(parts).toBe(5);
    expect(await findTitle(session)).toBe(`${'word '.repeat(12).slice(0, 59)}…`);
  });

  it('once: a title of the user stays, and no model is asked', async () => {
    const session = await openSession('My title');
    const model = modelSaying('Other');
    const { titles, publish } = createTitles(model);
    await titles.nameSession(session, exchange, unmetered);
    expect(await findTitle(session)).toBe('My title');
    expect([model.calls, publish.mock.calls]).toEqual([[], []]);
  });

  it('and publishes that, unless the user named it meanwhile', async () => {
    const [mine, theirs] = await Promise.all([openSession(), openSession()]);
    const { owner, sessionId } = theirs;
    await test.store.sessions.nameOnce({ owner, sessionId, title: 'My title' });
    const { titles, publish } = createTitles(new ScriptedModel(say('One'), say('Two')));
    await titles.nameSession(theirs, exchange, unmetered);
    expect([await findTitle(theirs), publish.mock.calls]).toEqual(['My title', []]);
    await titles.nameSession(mine, exchange, unmetered);
    expect(publish).toHaveBeenCalledExactlyOnceWith(
      { owner: mine.owner, sessionId: mine.sessionId },
      'titled',
    );
  });

  it('by the beginning of the exchange, as instructed', async () => {
    const model = modelSaying('Long texts');
    const long = { question: `q${'u'.repeat(3000)}`, answer: `a${'n'.repeat(3000)}` };
    await createTitles(model).titles.nameSession(await openSession(), long, unmetered);
    const content = `User: q${'u'.repeat(1999)}\n\nAssistant: a${'n'.repeat(1999)}`;
    expect(model.lastMessages).toEqual([{ role: 'user', content }]);
    expect(model.calls[0]?.system).toContain('at most six words');
  });

  it('at the cost of the turn, and by the first words if that may not spend more', async () => {
    const meter = new RecordingMeter((uses) => {
      if (uses.length > 0) throw new Error('out of credit');
    });
    const [first, second] = [await openSession(), await openSession()];
    const { titles } = createTitles(new ScriptedModel(say('Paid'), say('Not paid')));
    await titles.nameSession(first, exchange, meter);
    await titles.nameSession(second, exchange, meter);
    expect(meter.uses).toMatchObject([{ model: 'scripted/model', input: 10, output: 5 }]);
    expect([await findTitle(first), await findTitle(second)]).toEqual(['Paid', QUESTION]);
  });

  it('by the first words if the model does not answer within 30 seconds', async () => {
    const limit = new AbortController();
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(limit.signal);
    const { model } = createWaitingModel();
    const session = await openSession();
    const naming = createTitles(model).titles.nameSession(session, exchange, unmetered);
    await expect.poll(() => model.calls.length).toBe(1);
    limit.abort(new Error('late'));
    await naming;
    expect(timeout).toHaveBeenCalledExactlyOnceWith(30_000);
    expect(await findTitle(session)).toBe(QUESTION);
  });

  it('or not, if the store fails: the turn does not', async () => {
    const sessions: SessionStore = Object.create(test.store.sessions);
    sessions.nameOnce = () => Promise.reject(new Error('away'));
    const session = await openSession();
    const { titles, publish, log } = createTitles(modelSaying('Soil'), sessions);
    await titles.nameSession(session, exchange, unmetered);
    expect([await findTitle(session), publish.mock.calls]).toEqual([UNTITLED, []]);
    expect(log).toMatchObject([
      { level: 40, sessionId: session.sessionId, err: { message: 'away' } },
    ]);
  });
});

describe('Titles asks a model', () => {
  it('for at most 100 sessions at a time, and names others by their first words', async () => {
    const { model, release } = createWaitingModel();
    const { titles } = createTitles(model);
    const sessions = await Promise.all(Array.from({ length: 100 }, () => openSession()));
    const name = (session: Session) => titles.nameSession(session, exchange, unmetered);
    const naming = sessions.map(name);
    await expect.poll(() => model.calls.length).toBe(100);
    const crowded = await openSession();
    await name(crowded);
    expect([await findTitle(crowded), model.calls.length]).toEqual([QUESTION, 100]);
    release();
    await Promise.all(naming);
    expect(await Promise.all(sessions.map(findTitle))).toEqual(Array(100).fill('By the model'));
    const later = await openSession();
    await name(later);
    expect(await findTitle(later)).toBe('By the model');
  });
});

describe('Titles.close', () => {
  it('stores the first words for titles in progress, and waits for that', async () => {
    const { model } = createWaitingModel();
    const { titles, log } = createTitles(model);
    const session = await openSession();
    void titles.nameSession(session, exchange, unmetered);
    await expect.poll(() => model.calls.length).toBe(1);
    await titles.close(60_000);
    expect(await findTitle(session)).toBe(QUESTION);
    expect(log.filter(({ level }) => level === 40)).toEqual([]);
  });

  it('does not wait longer than its limit, and reports how many sessions have no title', async () => {
    const sessions: SessionStore = Object.create(test.store.sessions);
    sessions.nameOnce = () => new Promise(() => undefined);
    const { titles, log } = createTitles(modelSaying('Soil'), sessions);
    for (const session of [await openSession(), await openSession()])
      void titles.nameSession(session, exchange, unmetered);
    await titles.close(1);
    expect(log).toContainEqual(expect.objectContaining({ level: 40, sessions: 2 }));
  });
});
