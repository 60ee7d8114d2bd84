import { LruMap, textBytes } from '@sibyl/server-kit';

const QUARTER_MS = 15 * 60_000;
const ZONES_MAX_BYTES = 64 * 1024;
const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

interface Zone {
  readonly name: string;
  /** As in `+05:30`. */
  readonly offset: string;
  readonly offsetMs: number;
  /** Clocks change on the quarter hour, so that is how long an offset is sure. */
  readonly quarter: number;
}

/** Asking for an offset costs more than the rest of a prompt, and most users share a few zones. */
const zones = new LruMap<string, Zone>({
  maxBytes: ZONES_MAX_BYTES,
  sizeOf: ({ name, offset }, key) => textBytes(name) + textBytes(offset) + textBytes(key) + 64,
});

/** The time where the user is, as one line: weekday, ISO time to the minute with its offset, zone. */
export function currentTimeLine(isoTime: string, timezone: string): string {
  const time = new Date(isoTime);
  const { name, offset, offsetMs } = zoneAt(time, timezone);
  const there = new Date(time.getTime() + offsetMs);
  const clock = there.toISOString().slice(0, 'yyyy-mm-ddThh:mm'.length);
  return `Current time: ${WEEKDAYS[there.getUTCDay()]}, ${clock}${offset} (${name})`;
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
  const formatter = formatterOf(timezone);
  const parts = formatter.formatToParts(time);
  const told = parts.find(({ type }) => type === 'timeZoneName')?.value ?? '';
  const offset = told.replace('GMT', '') || '+00:00';
  const [hours = 0, minutes = 0] = offset.slice(1).split(':').map(Number);
  const offsetMs = (offset.startsWith('-') ? -1 : 1) * (hours * 60 + minutes) * 60_000;
  // The runtime may know an older name of the zone; users know the one they sent.
  const name = formatter.resolvedOptions().timeZone === 'UTC' ? 'UTC' : timezone;
  return { name, offset, offsetMs };
}

function formatterOf(timezone: string): Intl.DateTimeFormat {
  const format: Intl.DateTimeFormatOptions = { timeZoneName: 'longOffset' };
  try {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: timezone });
  } catch {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: 'UTC' });
  }
}
