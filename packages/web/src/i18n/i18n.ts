import { useSyncExternalStore } from 'react';
import { readText, storeText, watchTexts } from '../page/stored-value.js';
import { chat } from './en/chat.js';
import type { operator } from './en/operator.js';
import type { settings } from './en/settings.js';

/** A text with `{name}` for parameters, or one text per plural form of `count`. */
export type Text = string | Partial<Record<Intl.LDMLPluralRule, string>>;
export type Catalog = Readonly<Record<string, Text>>;

/** The catalogs: `chat` is always loaded, `settings` with the first settings screen, `operator` by the page of operators. */
export const areas = ['chat', 'settings', 'operator'] as const;
export type Area = (typeof areas)[number];

export const languages = {
  en: 'English',
  de: 'Deutsch',
  es: 'Español',
  fr: 'Français',
  pt: 'Português',
  ar: 'العربية',
  sw: 'Kiswahili',
} as const;
export type Language = keyof typeof languages;

export type TextKey =
  | `chat.${keyof typeof chat}`
  | `settings.${keyof typeof settings}`
  | `operator.${keyof typeof operator}`;
export type TextParams = Readonly<Record<string, string | number>>;

// Each file becomes its own chunk, except the one that every visitor needs.
const files = import.meta.glob<Readonly<Record<string, Catalog>>>([
  './*/*.ts',
  '!./en/chat.ts',
  '!./**/*.test.ts',
]);

/** What was loaded, also of other languages than the current one. */
const catalogs: Partial<Record<Language, Partial<Record<Area, Catalog>>>> = { en: { chat } };
let current: Language = 'en';
const wanted = new Set<Area>(['chat']);
const listeners = new Set<() => void>();

/** Characters that reorder what is beside them: code, arguments and sentences would look different from what they are. */
export const REORDERING = /[\u202a-\u202e\u2066-\u2069]/g;

/** Returns a text in the user's language, or in English where a catalog lacks it. */
export function t(key: TextKey, params: TextParams = {}): string {
  const [area, name] = split(key);
  const find = (language: Language) => catalogs[language]?.[area]?.[name];
  const text = find(current) ?? find('en') ?? key;
  const template = typeof text === 'string' ? text : choosePlural(text, params.count);
  return template.replace(/\{(\w+)\}/g, (whole, param: string) => {
    const value = params[param];
    if (typeof value === 'number') return formatNumber(value);
    return value?.replaceAll(REORDERING, '') ?? whole;
  });
}

function split(key: TextKey): [Area, string] {
  const dot = key.indexOf('.');
  return [key.slice(0, dot) as Area, key.slice(dot + 1)];
}

function choosePlural(text: Exclude<Text, string>, count: string | number | undefined): string {
  const rule = new Intl.PluralRules(current).select(Number(count ?? 0));
  return text[rule] ?? text.other ?? '';
}

export const formatNumber = (value: number): string => new Intl.NumberFormat(current).format(value);

export const getLanguage = (): Language => current;

/** Renders a component again when the language changes: the root of the page, and what is memoized below it. */
export const useLanguage = (): Language => useSyncExternalStore(subscribe, getLanguage);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Loads a catalog before the first use of its keys. */
export async function loadArea(area: Area): Promise<void> {
  wanted.add(area);
  await Promise.all([loadMissing('en'), loadMissing(current)]);
}

async function loadMissing(language: Language): Promise<void> {
  const load = async (area: Area) => {
    const catalog = await loadCatalog(language, area);
    catalogs[language] = { ...catalogs[language], [area]: catalog };
  };
  await Promise.all(listMissing(language).map(load));
}

const listMissing = (language: Language): readonly Area[] =>
  [...wanted].filter((area) => !catalogs[language]?.[area]);

export async function loadCatalog(language: Language, area: Area): Promise<Catalog> {
  if (language === 'en' && area === 'chat') return chat;
  const module = await files[`./${language}/${area}.ts`]?.();
  return module?.[area] ?? {};
}

const KEY = 'sibyl-language';

/** The language that the user has chosen, or else the first of the browser's that the page has. */
function readLanguage(): Language {
  const candidates = [readText(KEY) ?? '', ...navigator.languages];
  const known = candidates.map((each) => each.split('-')[0]?.toLowerCase() ?? '');
  return (known.find((each) => each in languages) as Language | undefined) ?? 'en';
}

export const chooseLanguage = (language: Language): void => storeText(KEY, language);

/** Applies the language of the user, also one that is chosen later, in this tab or another one. */
export async function followLanguage(): Promise<void> {
  watchTexts(() => {
    const language = readLanguage();
    // Without a connection, the page stays as it is.
    if (language !== current) applyLanguage(language).catch(() => undefined);
  });
  await applyLanguage(readLanguage());
}

async function applyLanguage(language: Language): Promise<void> {
  // More may be wanted meanwhile.
  while (listMissing(language).length > 0) await loadMissing(language);
  // Another one may be chosen meanwhile.
  if (language !== readLanguage()) return;
  current = language;
  document.documentElement.lang = language;
  document.documentElement.dir = language === 'ar' ? 'rtl' : 'ltr';
  for (const listener of listeners) listener();
}
