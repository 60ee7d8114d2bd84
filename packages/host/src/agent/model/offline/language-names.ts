const CODES =
  'af am ar bg bn ca cs cy da de el en es et eu fa fi fr ga gl ha he hi hr hu id ig it ja ko lt lv ms nb nl pl ps pt ro ru sk sl so sr sv sw ta te th tr uk ur vi xh yo zh zu';

const english = new Intl.DisplayNames('en', { type: 'language' });
const names = new Map(
  CODES.split(' ').map((code) => {
    const name = english.of(code) ?? code;
    return [name.toLowerCase(), name];
  }),
);

/** The first language a text names in English, as it is properly written. */
export function languageIn(text: string): string | undefined {
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) {
    const name = names.get(word);
    if (name) return name;
  }
  return undefined;
}
