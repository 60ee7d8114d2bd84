import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { finish } from '../../test/support/agent/scripted-model.js';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { unmetered } from '../agent/agent.js';
import type { Model } from '../models/model.js';
import { ModelFacts } from '../models/model-facts.js';
import { Titles } from './titles.js';

const test = useStore('sqlite');

/** A model that says one thing, or fails. */
function modelSaying(text: string | Error): Model {
  return {
    id: 'test',
    label: 'test',
    provider: 'test',
    facts: new ModelFacts(),
    async *stream() {
      if (text instanceof Error) throw text;
      yield { type: 'text', text };
      yield finish();
    },
  };
}

async function titleFrom(said: string | Error, question: string, title?: string): Promise<string> {
  const { sessions } = test.store;
  const session = await sessions.create({ owner: newOwner(), oracleDid: 'did:o', title });
  const logger = pino({ level: 'silent' });
  const changes = { publish: () => {} };
  const titles = new Titles({ sessions, changes, model: modelSaying(said), logger });
  await titles.nameSession(session, { question, answer: 'because' }, unmetered);
  const named = await sessions.find({ owner: session.owner, sessionId: session.id });
  return named?.title ?? '';
}

describe('Titles names a session', () => {
  it.each([
    ['by the model', 'Soil carbon in Kenya', 'Soil carbon in Kenya'],
    ['without its quotes and full stop', '"Soil carbon."\n\nHope that helps', 'Soil carbon'],
    ['by the first words when the model fails', new Error('away'), 'how much carbon can soil hold'],
    ['by the first words when it says nothing', '  ', 'how much carbon can soil hold'],
    ['within bounds', 'x'.repeat(500), `${'x'.repeat(59)}…`],
  ])('%s', async (_, said, expected) => {
    expect(await titleFrom(said, 'how much carbon can soil hold')).toBe(expected);
  });

  it('by the first words without the comma after them', async () => {
    const question = 'Compare the rain in Kitui, Machakos and Makueni, please';
    expect(await titleFrom('', question)).toBe('Compare the rain in Kitui, Machakos and Makueni');
  });

  it('without reading a long answer to its end or waiting long', async () => {
    expect(await titleFrom(`a${'.'.repeat(200_000)}b`, 'question')).toBe(`a`);
  });

  it('once: a title of the user stays', async () => {
    expect(await titleFrom('Other', 'question', 'My title')).toBe('My title');
  });
});
