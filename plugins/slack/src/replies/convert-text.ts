const CODE = /`+[^`]+`+/g;
const LINK = /!?\[([^\]]*)\]\(\s*<?(\S+?)>?(?:\s+"[^"]*")?\s*\)|<?(https?:\/\/[^\s<>]+)>?/g;

/** Marks of our own, for what must not be taken for emphasis while that is converted. */
const BOLD = '\u0001';
const KEPT = ['\u0002', '\u0003'] as const;
const MARKS = new RegExp(`[${BOLD}${KEPT.join('')}]`, 'g');

/** Longer lines are nobody's prose, and would take long to search. */
const MAX_LENGTH = 4000;

/** Emphasis and links of one line; code stays as it is. */
export function convertText(text: string): string {
  if (text.length > MAX_LENGTH) return escapeText(text);
  const kept: string[] = [];
  const keep = (piece: string) => placeOf(kept.push(piece) - 1);
  const bare = text
    .replace(MARKS, '')
    .replace(CODE, (code) => keep(escapeText(code)))
    .replace(LINK, (...match) => keep(linkOf(match as string[])));
  // A link may hold code, which was kept before it.
  const restore = (line: string): string =>
    line.replace(PLACE, (_, index: string) => restore(kept[Number(index)] ?? ''));
  return restore(emphasise(bare));
}

const placeOf = (index: number) => KEPT.join(String(index));
const PLACE = new RegExp(KEPT.join('(\\d+)'), 'g');

function linkOf([whole = '', label, target, bare]: readonly (string | undefined)[]): string {
  if (bare !== undefined) return escapeText(bare);
  if (!target || !/^(https?:\/\/|mailto:)/i.test(target)) return escapeText(whole);
  const url = escapeText(target).replaceAll('|', '%7C');
  const text = emphasise(label ?? '').replaceAll('|', '¦');
  return text ? `<${url}|${text}>` : `<${url}>`;
}

function emphasise(text: string): string {
  return escapeText(text)
    .replace(/\*\*\*(?=\S)(.+?)(?<=\S)\*\*\*/g, `_${BOLD}$1${BOLD}_`)
    .replace(/\*\*(?=\S)(.+?)(?<=\S)\*\*/g, `${BOLD}$1${BOLD}`)
    .replace(/(?<!\w)__(?=\S)(.+?)(?<=\S)__(?!\w)/g, `${BOLD}$1${BOLD}`)
    .replace(/(?<![*\w])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?![*\w])/g, '_$1_')
    .replace(/~~(?=\S)(.+?)(?<=\S)~~/g, '~$1~')
    .replaceAll(BOLD, '*');
}

/** So that nothing reads as markup of Slack's. */
export function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
