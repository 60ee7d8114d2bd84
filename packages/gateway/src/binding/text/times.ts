import { quote, ValueFault } from '../bind-fault.js';

/** A Timestamp's or Duration's two fields. */
export interface SecondsAndNanos {
  readonly seconds: bigint;
  readonly nanos: number;
}

const RFC3339 = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)$/;
const DURATION = /^[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/;
const DURATION_PART = /(\d*)\.?(\d*)(ns|us|µs|μs|ms|s|m|h)/g;
const NANOS_PER_SECOND = 1_000_000_000n;
/** Longer than any duration, and short enough to read at once. */
const MAX_LENGTH = 100;
const MAX_NANOS = 2n ** 63n;

const UNIT_NANOS: ReadonlyMap<string, bigint> = new Map([
  ['ns', 1n],
  ['us', 1000n],
  ['µs', 1000n],
  ['μs', 1000n],
  ['ms', 1_000_000n],
  ['s', NANOS_PER_SECOND],
  ['m', 60n * NANOS_PER_SECOND],
  ['h', 3600n * NANOS_PER_SECOND],
]);

/** RFC 3339 with any offset. */
export function parseTimestamp(text: string): SecondsAndNanos {
  const match = RFC3339.exec(text);
  const millis = match ? Date.parse(`${text.slice(0, 19)}Z`) : Number.NaN;
  // The date is checked by writing it again: a 30th of February comes back as another day.
  if (
    !match ||
    Number.isNaN(millis) ||
    !new Date(millis).toISOString().startsWith(text.slice(0, 19))
  )
    throw new ValueFault(`${quote(text)} is not a time such as 2006-01-02T15:04:05Z`);
  const offset = offsetSeconds(match[8] as string);
  const nanos = Number((match[7] ?? '').slice(0, 9).padEnd(9, '0'));
  return { seconds: BigInt(millis / 1000 - offset), nanos };
}

function offsetSeconds(zone: string): number {
  if (zone === 'Z') return 0;
  const seconds = Number(zone.slice(1, 3)) * 3600 + Number(zone.slice(4, 6)) * 60;
  return zone.startsWith('-') ? -seconds : seconds;
}

/** A duration as Go writes them, such as `1h30m` or `2.5s`. */
export function parseDuration(text: string): SecondsAndNanos {
  if (text.length > MAX_LENGTH || (text !== '0' && !DURATION.test(text))) throw notADuration(text);
  let total = 0n;
  for (const [, whole, fraction, unit] of text.matchAll(DURATION_PART)) {
    const nanos = UNIT_NANOS.get(unit as string) as bigint;
    const digits = fraction as string;
    total +=
      BigInt(whole || '0') * nanos + (BigInt(digits || '0') * nanos) / 10n ** BigInt(digits.length);
  }
  if (total >= MAX_NANOS) throw notADuration(text);
  const signed = text.startsWith('-') ? -total : total;
  return { seconds: signed / NANOS_PER_SECOND, nanos: Number(signed % NANOS_PER_SECOND) };
}

function notADuration(text: string): ValueFault {
  return new ValueFault(`${quote(text)} is not a duration such as 1h30m or 2.5s`);
}
