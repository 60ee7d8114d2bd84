import { clientEvents, runFrames, serverEvents } from '@sibyl/protocol';
import { z } from 'zod';
import { page, table } from './page.ts';

interface Told {
  readonly summary: string;
  readonly payload: z.ZodType;
  readonly wrapping?: 'bare' | 'enveloped';
}

const frames: Readonly<Record<string, z.ZodType>> = runFrames;
const socketEvents: Readonly<Record<string, Told>> = serverEvents;

/** Every event of streams and sockets, in both directions. */
export function eventsPage(): string {
  const names = new Set([...Object.keys(frames), ...Object.keys(socketEvents)]);
  return page(
    'Events',
    'What [streams and sockets](streams.md) carry. Every field is text unless it says otherwise; those with `?` may be missing.',
    '## From the host',
    'On the socket an event is its fields, or `{eventName, payload}` with the fields in `payload`.',
    table(['Event', 'Stream', 'Socket', 'Meaning', 'Fields'], [...names].map(fromHost)),
    '## From the client, over the socket',
    table(['Event', 'Meaning', 'Fields'], Object.entries(clientEvents).map(fromClient)),
  );
}

function fromHost(name: string): string[] {
  const frame = frames[name];
  const event = socketEvents[name] ?? { summary: frame?.description ?? '', payload: z.never() };
  const way = { bare: 'fields', enveloped: '`payload`', none: '' }[event.wrapping ?? 'none'];
  return [`\`${name}\``, frame ? 'yes' : '', way, event.summary, fieldsOf(frame ?? event.payload)];
}

const fromClient = ([name, { summary, payload }]: [string, Told]): string[] => [
  `\`${name}\``,
  summary,
  fieldsOf(payload),
];

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly enum?: readonly string[];
  readonly const?: string;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
}

/** Without the schemas' ids, by which JSON Schema would refer to them. */
const metadata = z.registry<object>();

/** `name`, `count: integer`, `reason?: a | b`: the fields of a payload, in a cell. */
function fieldsOf(payload: z.ZodType): string {
  const { properties = {}, required = [] } = z.toJSONSchema(payload, { metadata }) as Schema;
  const fields = Object.entries(properties).map(([name, schema]) => {
    const type = typeOf(schema);
    const mark = required.includes(name) ? '' : '?';
    return `\`${name}${mark}${type === 'string' ? '' : `: ${type}`}\``;
  });
  return fields.join(', ');
}

function typeOf({ type, items, anyOf, ...schema }: Schema): string {
  if (schema.enum) return schema.enum.join(' \\| ');
  if (schema.const !== undefined) return schema.const;
  if (anyOf) return anyOf.map(typeOf).join(' \\| ');
  if (items) return `${typeOf(items)}[]`;
  return type ?? 'any';
}
