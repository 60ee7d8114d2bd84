import { getLanguage, REORDERING, t } from './i18n.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

let readClock = Date.now;

/** The time by the clock of the oracle, in Unix milliseconds; that of the device may be wrong. */
export const nowMs = (): number => readClock();

/** Follows the clock of the oracle. */
export function followClock(oracle: { now(): number }): void {
  readClock = () => oracle.now() * 1000;
}

/** Relative for less than a day, such as "3 minutes ago", then the date. */
export function formatWhen(value: string | number | Date): string {
  const date = new Date(value);
  const age = nowMs() - date.getTime();
  const relative = new Intl.RelativeTimeFormat(getLanguage(), { numeric: 'auto' });
  const size = Math.abs(age);
  if (size < MINUTE_MS) return t('chat.time.now');
  if (size < HOUR_MS) return relative.format(-Math.round(age / MINUTE_MS), 'minute');
  if (size < DAY_MS) return relative.format(-Math.round(age / HOUR_MS), 'hour');
  return formatDate(date);
}

/** Today, yesterday, then the date. */
export function formatDay(value: string | number | Date): string {
  const midnight = findMidnight();
  const at = new Date(value).getTime();
  if (at >= midnight) return t('chat.group.today');
  return at >= midnight - DAY_MS ? t('chat.group.yesterday') : formatDate(value);
}

/** When today began, in Unix milliseconds. */
export const findMidnight = (): number => new Date(nowMs()).setHours(0, 0, 0, 0);

export const formatDate = (value: string | number | Date): string =>
  formatAs({ dateStyle: 'medium' }, value);

export const formatDateTime = (value: string | number | Date): string =>
  formatAs({ dateStyle: 'medium', timeStyle: 'short' }, value);

export const formatTime = (
  value: string | number | Date,
  timeStyle: 'short' | 'medium' = 'short',
): string => formatAs({ timeStyle }, value);

const formats = new Map<string, Intl.DateTimeFormat>();

/** Reuses the formats: to create one takes longer than to render everything else in a row of a list. */
function formatAs(
  style: Pick<Intl.DateTimeFormatOptions, 'dateStyle' | 'timeStyle'>,
  value: string | number | Date,
): string {
  // A format keeps the time zone in which it was created, and the user may travel.
  const zone = new Date().getTimezoneOffset();
  const key = [getLanguage(), style.dateStyle, style.timeStyle, zone].join();
  const format = formats.get(key) ?? new Intl.DateTimeFormat(getLanguage(), style);
  formats.set(key, format);
  return format.format(new Date(value));
}

/** Text as it is stored, with names in place of the characters that would reorder it. */
export const showReordering = (text: string): string =>
  text.replaceAll(REORDERING, (found) => `[U+${found.charCodeAt(0).toString(16).toUpperCase()}]`);

/** As in the settings of operators and in file managers. */
const KIBI = 1024;

/** Such as "1.4 MB". */
export function formatBytes(bytes: number): string {
  const units = ['byte', 'kilobyte', 'megabyte', 'gigabyte'] as const;
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), units.length - 1);
  return new Intl.NumberFormat(getLanguage(), {
    style: 'unit',
    unit: units[power] ?? 'byte',
    // The short form of bytes has no plural.
    unitDisplay: power === 0 ? 'long' : 'short',
    maximumFractionDigits: 1,
  }).format(bytes / KIBI ** power);
}

/** The currency is the operator's, who sets the prices. */
export const formatCost = (cost: number): string =>
  new Intl.NumberFormat(getLanguage(), {
    minimumFractionDigits: 2,
    maximumFractionDigits: 4,
  }).format(cost);
