// Builds the generated pages of docs/; run as a script, writes them.
import { readFileSync, writeFileSync } from 'node:fs';
import { GrpcCode, toHttpStatus } from '@sibyl/gateway';
import { clientEvents, errorCatalog, runFrames, serverEvents } from '@sibyl/protocol';
import { cruise, type ICruiseResult } from 'dependency-cruiser';
import extractDepcruiseOptions from 'dependency-cruiser/config-utl/extract-depcruise-options';
import { z } from 'zod';
import { Environment } from '../packages/host/src/config/environment.ts';

/** Builds the pages of `docs/` that are generated, wholly or in part: path → text. */
export async function buildReferencePages(): Promise<Readonly<Record<string, string>>> {
  return {
    [ARCHITECTURE]: await buildArchitecturePage(),
    'docs/configuration.md': buildConfigurationPage(),
    'docs/errors.md': buildErrorsPage(),
    'docs/events.md': buildEventsPage(),
  };
}

const ARCHITECTURE = 'docs/architecture.md';

/** The page with current diagrams; comments mark the place of each. */
async function buildArchitecturePage(): Promise<string> {
  let text = readFileSync(ARCHITECTURE, 'utf8');
  for (const [name, diagram] of Object.entries(await drawFolders())) {
    const place = new RegExp(`(<!-- diagram ${name}[^>]*-->\n).*?(<!-- end -->)`, 's');
    if (!place.test(text))
      throw new Error(`${ARCHITECTURE} has no comment for the diagram ${name}`);
    text = text.replace(place, `$1\n\`\`\`mermaid\n${diagram}\n\`\`\`\n\n$2`);
  }
  return text;
}

function buildConfigurationPage(): string {
  const rows = Object.entries(Environment.shape).map(([name, schema]) => [
    `\`${name}\``,
    readDefault(schema),
    schema.description ?? '',
  ]);
  return buildPage(
    'Configuration',
    'The host reads its environment once, at the start. Invalid values stop it with one list of all errors, each with the fix. An empty variable counts as unset.',
    buildTable(['Variable', 'Default', 'Meaning'], rows),
  );
}

function readDefault(schema: z.ZodType): string {
  if (!(schema instanceof z.ZodPrefault) || schema.def.defaultValue === '') return '';
  return `\`${schema.def.defaultValue}\``;
}

function buildErrorsPage(): string {
  const codes = Object.entries(errorCatalog).map(([code, [status, text]]) => [
    `\`${code}\``,
    `${status}`,
    text.replaceAll('<', '\\<'),
  ]);
  return buildPage(
    'Errors',
    'Every error is JSON: `{statusCode, message, error, code, requestId}`. `code` is for programs and stable; `message` is for people. For an invalid body or query, `message` is a list with one line per field.',
    buildTable(['Code', 'Status', 'Text'], codes),
    '## Gateway errors',
    'The [gateway](gateway.md) answers as a node does: `{code, message, details}`, where `code` is the gRPC code. More specific HTTP statuses are 405 for a method that the route does not have, 413 for a body that is too large and 414 for a URL that is too long.',
    buildTable(['Code', 'Name', 'Status'], listGatewayCodes()),
  );
}

const listGatewayCodes = () =>
  Object.entries(GrpcCode)
    .filter(([, code]) => code !== GrpcCode.ok)
    .map(([name, code]) => [`${code}`, toGrpcName(name), `${toHttpStatus(code)}`]);

const toGrpcName = (name: string) => `\`${name.replace(/[A-Z]/g, '_$&').toUpperCase()}\``;

interface SocketEvent {
  readonly summary: string;
  readonly payload: z.ZodType;
  readonly wrapping?: 'bare' | 'enveloped';
}

const frames: Readonly<Record<string, z.ZodType>> = runFrames;
const socketEvents: Readonly<Record<string, SocketEvent>> = serverEvents;

function buildEventsPage(): string {
  const names = new Set([...Object.keys(frames), ...Object.keys(socketEvents)]);
  return buildPage(
    'Events',
    'The events of [streams and sockets](streams.md). A field without a type is a string; a field with `?` is optional.',
    '## From the host',
    'On the socket, an event consists of its fields, or of `{eventName, payload}` with the fields in `payload`.',
    buildTable(['Event', 'Stream', 'Socket', 'Meaning', 'Fields'], [...names].map(toHostRow)),
    '## From the client, over the socket',
    buildTable(['Event', 'Meaning', 'Fields'], Object.entries(clientEvents).map(toClientRow)),
  );
}

function toHostRow(name: string): string[] {
  const frame = frames[name];
  const event = socketEvents[name] ?? { summary: frame?.description ?? '', payload: z.never() };
  const way = { bare: 'fields', enveloped: '`payload`', none: '' }[event.wrapping ?? 'none'];
  return [
    `\`${name}\``,
    frame ? 'yes' : '',
    way,
    event.summary,
    listFields(frame ?? event.payload),
  ];
}

const toClientRow = ([name, { summary, payload }]: [string, SocketEvent]): string[] => [
  `\`${name}\``,
  summary,
  listFields(payload),
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

/** Without the ids of schemas, which JSON Schema would use as references. */
const metadata = z.registry<object>();

/** The fields of a payload in a table cell: `name`, `count: integer`, `reason?: a | b`. */
function listFields(payload: z.ZodType): string {
  const { properties = {}, required = [] } = z.toJSONSchema(payload, { metadata }) as Schema;
  const fields = Object.entries(properties).map(([name, schema]) => {
    const type = describeType(schema);
    const mark = required.includes(name) ? '' : '?';
    return `\`${name}${mark}${type === 'string' ? '' : `: ${type}`}\``;
  });
  return fields.join(', ');
}

function describeType({ type, items, anyOf, ...schema }: Schema): string {
  if (schema.enum) return schema.enum.join(' \\| ');
  if (schema.const !== undefined) return schema.const;
  if (anyOf) return anyOf.map(describeType).join(' \\| ');
  if (items) return `${describeType(items)}[]`;
  return type ?? 'any';
}

function buildPage(title: string, ...paragraphs: readonly string[]): string {
  const note = '<!-- Generated by `npm run docs`. Edit the code it comes from. -->';
  return `${[`# ${title}`, note, ...paragraphs].join('\n\n')}\n`;
}

/** Cells may contain Markdown. */
function buildTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, head.map(() => '---'), ...rows].map((cells, i) =>
    i === 1 ? `|${cells.join('|')}|` : `| ${cells.join(' | ')} |`,
  );
  return lines.join('\n');
}

type Arrow = readonly [from: string, to: string];

/** Draws the imports between folders: name of the diagram → Mermaid source. */
async function drawFolders(): Promise<Readonly<Record<string, string>>> {
  const { modules } = await findImports();
  return {
    packages: draw(findArrows(modules, /^(?:packages\/([^/]+)|(plugins)\/[^/]+)\/src\//)),
    host: draw(findArrows(modules, /^packages\/host\/src\/(?!app\/)([^/]+)\//)),
  };
}

async function findImports(): Promise<ICruiseResult> {
  const { ruleSet, ...options } = await extractDepcruiseOptions('./.dependency-cruiser.cjs');
  const { output } = await cruise(['packages', 'plugins'], {
    ...options,
    validate: false,
    includeOnly: { path: '^(packages|plugins)/[^/]+/src/' },
    outputType: 'json',
  });
  return JSON.parse(output as string);
}

/** Which folder imports which; the pattern captures the folder of a path. */
function findArrows(modules: ICruiseResult['modules'], folder: RegExp): Arrow[] {
  const findFolder = (path: string) => folder.exec(path)?.slice(1).find(Boolean);
  const found = new Map<string, Arrow>();
  for (const { source, dependencies } of modules)
    for (const { resolved } of dependencies) {
      const [from, to] = [findFolder(source), findFolder(resolved)];
      if (from && to && from !== to) found.set(`${from} ${to}`, [from, to]);
    }
  return [...found.values()];
}

/** Leaves out arrows that follow from others, for readability. */
function draw(arrows: readonly Arrow[]): string {
  const lines = arrows
    .filter(([from, to]) => !listNext(from, arrows).some((next) => leadsTo(next, to, arrows)))
    .map(([from, to]) => `  ${from} --> ${to}`);
  return ['flowchart TD', ...lines.toSorted()].join('\n');
}

const listNext = (from: string, arrows: readonly Arrow[]) =>
  arrows.filter(([start]) => start === from).map(([, end]) => end);

/** Whether a path leads from one folder to the other; there are no cycles. */
const leadsTo = (from: string, to: string, arrows: readonly Arrow[]): boolean =>
  listNext(from, arrows).some((next) => next === to || leadsTo(next, to, arrows));

if (import.meta.main)
  for (const [path, text] of Object.entries(await buildReferencePages())) writeFileSync(path, text);
