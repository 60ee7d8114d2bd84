import { LruMap, textBytes } from '@sibyl/server-kit';
import { plainLine, quoteLine } from './prompt.js';

const LINE_LIMIT = 512;
/** A turn that begins this long after its message was sent, because it waited or was resumed, has a second time. */
const LATE_MS = 5 * 60_000;

/** A service that is unavailable, and what the agent cannot do without it. */
export interface DegradedService {
  readonly name: string;
  readonly missing: string;
}

export interface NoteOptions {
  /** In milliseconds. */
  readonly sentAt: number;
  /** IANA name. */
  readonly timezone: string;
  /** The metadata of the message, which may name what the user has open. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** The current time; set for the newest message only. */
  readonly now?: number | undefined;
  readonly degraded?: readonly DegradedService[] | undefined;
}

/**
 * Describes the circumstances of a message to the model. It depends on the stored message only, as far as possible:
 * then the message is the same text in every later turn, and providers find it in their caches.
 */
export function composeNote(options: NoteOptions): string {
  const { sentAt, timezone, metadata = {}, now = sentAt, degraded = [] } = options;
  const lines = [`Sent: ${formatTime(sentAt, timezone)}`];
  if (now - sentAt >= LATE_MS) lines.push(`Current time: ${formatTime(now, timezone)}`);
  lines.push(...listOpen(metadata), ...degraded.map(describeDegraded));
  return lines.map((line) => `[${line}]`).join('\n');
}

const OPEN_FIELDS = [
  ['Open entity', 'currentEntityDid'],
  ['Open space', 'spaceId'],
  ['Room of the open editor', 'editorRoomId'],
] as const;

function listOpen(metadata: Readonly<Record<string, unknown>>): string[] {
  return OPEN_FIELDS.flatMap(([label, field]) => {
    const value = metadata[field];
    return typeof value === 'string' && value ? `${label}: ${quoteLine(value, LINE_LIMIT)}` : [];
  });
}

function describeDegraded({ name, missing }: DegradedService): string {
  return `Not available now: ${plainLine(name, LINE_LIMIT)}: ${plainLine(missing, LINE_LIMIT)}`;
}

const QUARTER_MS = 15 * 60_000;
const CACHE_BYTES = 1024 * 1024;
/** What the runtime keeps for a formatter. */
const FORMATTER_BYTES = 16 * 1024;
const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

interface Zone {
  /** The runtime may use an older name of the zone; users know the one they sent. */
  readonly name: string;
  readonly formatter: Intl.DateTimeFormat;
}

/** Creating a formatter takes longer than everything else, and most users share a few zones. */
const zones = new LruMap<string, Zone>({
  maxBytes: CACHE_BYTES,
  measure: (_, timezone) => FORMATTER_BYTES + 2 * textBytes(timezone),
});

/** As in `+05:30`, by zone and quarter of an hour: offsets do not change within one. */
const offsets = new LruMap<string, string>({
  maxBytes: CACHE_BYTES,
  measure: (offset, key) => textBytes(offset) + textBytes(key) + 64,
});

/** Formats the user's local time: weekday, ISO time with minutes and offset, zone. */
function formatTime(at: number, timezone: string): string {
  const zone = zones.get(timezone) ?? openZone(timezone);
  const quarter = Math.floor(at / QUARTER_MS);
  const offset = offsets.get(`${quarter} ${zone.name}`) ?? readOffset(zone, quarter);
  const there = new Date(at + toMilliseconds(offset));
  const clock = there.toISOString().slice(0, 'yyyy-mm-ddThh:mm'.length);
  return `${WEEKDAYS[there.getUTCDay()]}, ${clock}${offset} (${zone.name})`;
}

function openZone(timezone: string): Zone {
  const formatter = createFormatter(timezone);
  const name = formatter.resolvedOptions().timeZone === 'UTC' ? 'UTC' : timezone;
  zones.set(timezone, { name, formatter });
  return { name, formatter };
}

function readOffset({ name, formatter }: Zone, quarter: number): string {
  const parts = formatter.formatToParts(quarter * QUARTER_MS);
  const label = parts.find(({ type }) => type === 'timeZoneName')?.value ?? '';
  const offset = label.replace('GMT', '') || '+00:00';
  offsets.set(`${quarter} ${name}`, offset);
  return offset;
}

function toMilliseconds(offset: string): number {
  const [hours = 0, minutes = 0] = offset.slice(1).split(':').map(Number);
  return (offset.startsWith('-') ? -1 : 1) * (hours * 60 + minutes) * 60_000;
}

function createFormatter(timezone: string): Intl.DateTimeFormat {
  const format: Intl.DateTimeFormatOptions = { timeZoneName: 'longOffset' };
  try {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: timezone });
  } catch {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: 'UTC' });
  }
}
