import { type DescEnum, type DescField, type JsonValue, ScalarType } from '@bufbuild/protobuf';

/** A value as protobuf's own JSON has it, which is how it gets on the wire, and as a node prints it. */
export interface Sample {
  readonly wire: JsonValue;
  readonly printed: string;
}

/** Picks one of several. */
export type Pick = <T>(choices: readonly T[]) => T;

/** Picks at random, and the same at random for the same seed. */
export function seededPick(seed: number): Pick {
  let state = seed;
  return (choices) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    // The low bits of such a sequence repeat after a few steps.
    return choices[Math.floor((state / 2 ** 32) * choices.length)] as (typeof choices)[number];
  };
}

const TEXTS = [
  'did:ixo:entity:1a2b',
  '<b>&amp;</b>',
  '"quoted" \\ ümläut 🜁',
  'line\nbreak\ttab',
  '\u2028\u2029',
];
const BYTES = [[0], [255, 254], [0x3e, 0x3f, 0xbf], [1, 2, 3, 4, 5, 6, 7]];
const DECIMALS: readonly [wire: string, printed: string][] = [
  ['1', '0.000000000000000001'],
  ['1500000000000000000', '1.500000000000000000'],
  ['-250000000000000000', '-0.250000000000000000'],
  ['123456789012345678901234567890', '123456789012.345678901234567890'],
];
const SCALARS: Partial<Record<ScalarType, readonly JsonValue[]>> = {
  [ScalarType.BOOL]: [true],
  [ScalarType.INT32]: [1, -1, 2147483647, -2147483648],
  [ScalarType.UINT32]: [1, 4294967295],
  [ScalarType.INT64]: ['1', '-1', '9007199254740993', '-9223372036854775808'],
  [ScalarType.UINT64]: ['1', '9007199254740993', '18446744073709551615'],
};

const plain = (value: JsonValue): Sample => ({ wire: value, printed: JSON.stringify(value) });

export function sampleScalar(type: ScalarType, pick: Pick): Sample {
  if (type === ScalarType.STRING) {
    const text = pick(TEXTS);
    return { wire: text, printed: printText(text) };
  }
  if (type === ScalarType.BYTES) return plain(Buffer.from(pick(BYTES)).toString('base64'));
  const values = SCALARS[type];
  if (!values) throw new Error(`no samples of scalar type ${type}`);
  return plain(pick(values));
}

export function sampleEnum({ values }: DescEnum, pick: Pick): Sample {
  const unknown = 4711;
  const value = pick([...values.slice(1), unknown]);
  if (typeof value === 'number') return plain(value);
  return { wire: value.number, printed: JSON.stringify(value.name) };
}

/** Numbers that are text on the wire and have a separate type in Go. */
export function sampleCustom(customtype: string, pick: Pick): Sample {
  if (customtype.endsWith('LegacyDec')) {
    const [wire, printed] = pick(DECIMALS);
    return { wire, printed: JSON.stringify(printed) };
  }
  const whole = ['7', '340282366920938463463374607431768211456'];
  return plain(pick(customtype.endsWith('.Int') ? [...whole, '-12'] : whole));
}

/** Times, which print as they are read. */
const TIMES: Record<string, readonly string[]> = {
  'google.protobuf.Timestamp': [
    '2024-02-29T23:59:59Z',
    '2025-06-01T12:30:00.500Z',
    '1969-12-31T23:59:59.999999Z',
    '2001-09-09T01:46:40.000000001Z',
  ],
  'google.protobuf.Duration': ['3600s', '1.500s', '0.000001s', '-2.000000001s'],
};

export function sampleTime(type: string, pick: Pick): Sample | undefined {
  const times = TIMES[type];
  return times && plain(pick(times));
}

/** The text for an absent field, except messages. */
export function printAbsent(field: DescField, customtype: string): string {
  if (field.fieldKind === 'list') return '[]';
  if (customtype) return customtype.endsWith('LegacyDec') ? 'null' : '"0"';
  if (field.fieldKind === 'enum') return JSON.stringify(field.enum.values[0]?.name);
  if (field.fieldKind !== 'scalar') throw new Error(`no zero for a ${field.fieldKind}`);
  if (field.scalar === ScalarType.STRING) return '""';
  if (field.scalar === ScalarType.BYTES) return 'null';
  if (field.scalar === ScalarType.BOOL) return 'false';
  return field.scalar === ScalarType.INT64 || field.scalar === ScalarType.UINT64 ? '"0"' : '0';
}

/** Go escapes what could be taken for HTML, and two line ends that JavaScript once stumbled over. */
function printText(text: string): string {
  return JSON.stringify(text).replace(
    /[<>&\u2028\u2029]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
