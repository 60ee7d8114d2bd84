import { z } from 'zod';
import { isObject } from './map-schema.js';

/** Longer texts have no format: the expressions that check formats are not made for them. */
const MAX_FORMATTED_LENGTH = 4096;

type Keywords = Readonly<Record<string, unknown>>;

/** What is wrong with a string, a number, or the size of an object or array. */
export function plainFaults(schema: Keywords, value: unknown): string[] {
  if (typeof value === 'number') return numberFaults(schema, value);
  if (typeof value === 'string')
    return [
      ...sizeFaults('characters', value.length, schema.minLength, schema.maxLength),
      ...formatFaults(schema.format, value),
    ];
  if (Array.isArray(value))
    return sizeFaults('items', value.length, schema.minItems, schema.maxItems);
  if (!isObject(value)) return [];
  const { minProperties, maxProperties } = schema;
  return sizeFaults('fields', Object.keys(value).length, minProperties, maxProperties);
}

function sizeFaults(noun: string, size: number, least: unknown, most: unknown): string[] {
  if (typeof least === 'number' && size < least) return [`expected at least ${least} ${noun}`];
  if (typeof most === 'number' && size > most) return [`expected at most ${most} ${noun}`];
  return [];
}

function numberFaults(schema: Keywords, value: number): string[] {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  // Draft 4 says `true` beside the limit.
  const above = exclusiveMinimum === true ? minimum : exclusiveMinimum;
  const below = exclusiveMaximum === true ? maximum : exclusiveMaximum;
  if (typeof minimum === 'number' && value < minimum) return [`expected at least ${minimum}`];
  if (typeof maximum === 'number' && value > maximum) return [`expected at most ${maximum}`];
  if (typeof above === 'number' && value <= above) return [`expected more than ${above}`];
  if (typeof below === 'number' && value >= below) return [`expected less than ${below}`];
  if (typeof multipleOf === 'number' && !z.number().multipleOf(multipleOf).safeParse(value).success)
    return [`expected a multiple of ${multipleOf}`];
  return [];
}

const formats: Readonly<Record<string, z.ZodType>> = {
  date: z.iso.date(),
  'date-time': z.iso.datetime({ offset: true }),
  duration: z.iso.duration(),
  email: z.email(),
  ipv4: z.ipv4(),
  ipv6: z.ipv6(),
  uri: z.url(),
  uuid: z.uuid(),
};

function formatFaults(format: unknown, value: string): string[] {
  const known = typeof format === 'string' && Object.hasOwn(formats, format);
  if (!known) return [];
  const fits = value.length <= MAX_FORMATTED_LENGTH && formats[format]?.safeParse(value).success;
  return fits ? [] : [`expected a ${format}`];
}
