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
const ZONES_MAX_BYTES = 64 * 1024;
const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

interface Zone {
  readonly name: string;
  /** As in `+05:30`. */
  readonly offset: string;
  readonly offsetMs: number;
  /** Offsets change only at a quarter of an hour, so they are cached that long. */
  readonly quarter: number;
}

/** Computing an offset costs more than the rest of a note, and most users share a few zones. */
const zones = new LruMap<string, Zone>({
  maxBytes: ZONES_MAX_BYTES,
  measure: ({ name, offset }, key) => textBytes(name) + textBytes(offset) + textBytes(key) + 64,
});

/** Formats the user's local time: weekday, ISO time with minutes and offset, zone. */
function formatTime(at: number, timezone: string): string {
  const time = new Date(at);
  const { name, offset, offsetMs } = zoneAt(time, timezone);
  const there = new Date(time.getTime() + offsetMs);
  const clock = there.toISOString().slice(0, 'yyyy-mm-ddThh:mm'.length);
  return `${WEEKDAYS[there.getUTCDay()]}, ${clock}${offset} (${name})`;
}

function zoneAt(time: Date, timezone: string): Zone {
  const quarter = Math.floor(time.getTime() / QUARTER_MS);
  const known = zones.get(timezone);
  if (known?.quarter === quarter) return known;
  const zone = { ...readZone(time, timezone), quarter };
  zones.set(timezone, zone);
  return zone;
}

function readZone(time: Date, timezone: string): Omit<Zone, 'quarter'> {
  const formatter = createFormatter(timezone);
  const parts = formatter.formatToParts(time);
  const label = parts.find(({ type }) => type === 'timeZoneName')?.value ?? '';
  const offset = label.replace('GMT', '') || '+00:00';
  const [hours = 0, minutes = 0] = offset.slice(1).split(':').map(Number);
  const offsetMs = (offset.startsWith('-') ? -1 : 1) * (hours * 60 + minutes) * 60_000;
  // The runtime may return an older name of the zone; users know the one they sent.
  const name = formatter.resolvedOptions().timeZone === 'UTC' ? 'UTC' : timezone;
  return { name, offset, offsetMs };
}

function createFormatter(timezone: string): Intl.DateTimeFormat {
  const format: Intl.DateTimeFormatOptions = { timeZoneName: 'longOffset' };
  try {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: timezone });
  } catch {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: 'UTC' });
  }
}
