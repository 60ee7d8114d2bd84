/** Making a formatter costs more than the rest of a prompt, and most users share a few zones. */
const formatters = new Map<string, Intl.DateTimeFormat>();
const FORMATTERS_LIMIT = 100;

/** The time where the user is, as one line: weekday, ISO time with its offset, zone. */
export function currentTimeLine(isoTime: string, timezone: string): string {
  const formatter = formatterOf(timezone);
  const parts = formatter.formatToParts(new Date(isoTime));
  const of = Object.fromEntries(parts.map(({ type, value }) => [type, value]));
  const date = `${of.year}-${of.month}-${of.day}`;
  const time = `${of.hour}:${of.minute}:${of.second}`;
  const offset = of.timeZoneName?.replace('GMT', '') || '+00:00';
  // The runtime may know an older name of the zone; users know the one they sent.
  const name = formatter.resolvedOptions().timeZone === 'UTC' ? 'UTC' : timezone;
  return `Current time: ${of.weekday}, ${date}T${time}${offset} (${name})`;
}

function formatterOf(timezone: string): Intl.DateTimeFormat {
  const known = formatters.get(timezone);
  if (known) return known;
  const made = makeFormatter(timezone);
  if (formatters.size >= FORMATTERS_LIMIT) formatters.clear();
  formatters.set(timezone, made);
  return made;
}

function makeFormatter(timezone: string): Intl.DateTimeFormat {
  const format: Intl.DateTimeFormatOptions = {
    weekday: 'long',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hourCycle: 'h23',
    timeZoneName: 'longOffset',
  };
  try {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: timezone });
  } catch {
    return new Intl.DateTimeFormat('en-GB', { ...format, timeZone: 'UTC' });
  }
}
