import { describe, expect, it } from 'vitest';
import {
  areas,
  type Catalog,
  type Language,
  languages,
  loadCatalog,
  type Text,
  t,
} from './i18n.js';

const others = Object.keys(languages).filter((each) => each !== 'en') as Language[];

const listForms = (text: Text): string[] =>
  typeof text === 'string' ? [text] : Object.values(text);

/** The parameters of a text, in any plural form. */
const listParams = (text: Text): string[] =>
  [...new Set(listForms(text).flatMap((form) => form.match(/\{\w+\}/g) ?? []))].sort();

it.each(Object.keys(languages) as Language[])(
  'in %s, the key is explained in two sentences',
  async (language) => {
    const { 'key.lede': text = '' } = await loadCatalog(language, 'settings');
    expect(String(text).match(/\.(?=\s|$)/g)).toHaveLength(2);
  },
);

describe.each(areas)('catalog %s', (area) => {
  it.each(others)('in %s has every text of the English one, and no other', async (language) => {
    const [english, translated] = await Promise.all([
      loadCatalog('en', area),
      loadCatalog(language, area),
    ]);
    expect(Object.keys(translated).sort()).toEqual(Object.keys(english).sort());
    for (const text of Object.values(translated))
      for (const form of listForms(text)) expect(form.trim()).not.toBe('');
  });

  it.each(others)('in %s has the parameters of the English one', async (language) => {
    const english = await loadCatalog('en', area);
    const translated: Catalog = await loadCatalog(language, area);
    for (const [key, text] of Object.entries(english))
      expect([key, listParams(translated[key] ?? '')]).toEqual([key, listParams(text)]);
  });

  it.each(others)('in %s has every plural form of the language', async (language) => {
    const rules = new Intl.PluralRules(language).resolvedOptions().pluralCategories;
    // French, Spanish and Portuguese use `many` for millions only.
    const needed = rules.filter((rule) => language === 'ar' || rule !== 'many');
    for (const [key, text] of Object.entries(await loadCatalog(language, area))) {
      if (typeof text === 'string') continue;
      expect([key, needed.filter((rule) => !(rule in text))]).toEqual([key, []]);
    }
  });
});

it('a name cannot reorder the sentence around it', () => {
  const title = 'Report \u202e\u2066live\u2069';
  expect(t('chat.conversation.more', { title })).toBe('More about Report live');
});
