const CODES =
  'af am ar bg bn ca cs cy da de el en es et eu fa fi fr ga gl ha he hi hr hu id ig it ja ko lt lv ms nb nl pl ps pt ro ru sk sl so sr sv sw ta te th tr uk ur vi xh yo zh zu';

/** Made at the first question: asking ICU for them would slow the start of every process. */
let names: ReadonlyMap<string, string> | undefined;

function namesByLowerCase(): ReadonlyMap<string, string> {
  const english = new Intl.DisplayNames('en', { type: 'language' });
  const all = CODES.split(' ').map((code) => english.of(code) ?? code);
  return new Map(all.map((name) => [name.toLowerCase(), name]));
}

/** The first language a text names in English, as it is properly written. */
export function languageIn(text: string): string | undefined {
  names ??= namesByLowerCase();
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) {
    const name = names.get(word);
    if (name) return name;
  }
  return undefined;
}
