import type {
  ApprovalRequestEvent,
  Citation,
  DoneFrame,
  Message,
  Question,
  ReplyPart,
} from '@sibyl/client';
import { CommandError } from './command.js';
import { MarkdownPrinter } from './markdown.js';
import { type Output, plainText } from './terminal.js';

const SHOWN = 200;
const SHORT_ID = 12;

const marks = { isRunning: '⚙', done: '✓', error: '✗' } as const;

interface ShownCall {
  readonly toolName: string;
  readonly status: keyof typeof marks;
  readonly args: object;
  readonly output?: string | undefined;
  readonly error?: string | undefined;
}

/** Writes a reply to the terminal as it arrives: text as Markdown, everything else as short lines between. */
export class ReplyPrinter {
  status = '';
  /** Whether the turn waits for the answer to a question. */
  isAsked = false;
  private isInLine = false;
  /** Below the answer, as they arrive in the middle of its text. */
  private readonly citations: Citation[] = [];
  /** The approvals that were shown. */
  private readonly requested = new Set<string>();
  private readonly markdown: MarkdownPrinter;

  constructor(
    private readonly output: Output,
    /** The oracle as commands name it; empty for the default one. */
    private readonly address = '',
  ) {
    this.markdown = new MarkdownPrinter(output);
  }

  print(part: ReplyPart): void {
    switch (part.event) {
      case 'message':
        this.text(part.data.content);
        break;
      case 'tool_call':
      case 'action_call':
        this.line(describeCall(part.data));
        break;
      case 'router_update':
        this.line(`→ ${part.data.to ?? ''} ${part.data.step}`);
        break;
      case 'approval_request':
        this.requested.add(part.data.approvalId);
        this.line(describeRequest(part.data, this.address));
        break;
      case 'citation':
        this.citations.push(part.data.citation);
        break;
      case 'warning':
        this.line(`! ${part.data.message}`);
        break;
      case 'error':
        this.line(`✗ ${part.data.error}`);
        break;
      case 'done':
        this.end(part.data);
        break;
    }
  }

  private text(text: string): void {
    this.markdown.write(plainText(text));
    this.isInLine = !text.endsWith('\n');
  }

  private end({ status, pending }: DoneFrame): void {
    this.status = status;
    for (const citation of this.citations) this.line(describeCitation(citation));
    this.isAsked = (pending ?? []).some(
      ({ id, kind }) => kind !== 'tool_call' && !this.requested.has(id),
    );
    if (status !== 'finished' && !pending) this.line(`(${status})`);
    this.endLine();
  }

  private line(text: string): void {
    this.endLine();
    printLine(text, this.output);
  }

  private endLine(): void {
    this.markdown.end();
    if (this.isInLine) this.output.write('\n');
    this.isInLine = false;
  }
}

/** Writes a stored message as the reply was written. */
export function printMessage(message: Message, output: Output): void {
  const parts = message.parts ?? [{ type: 'text' as const, text: message.content }];
  for (const part of parts) printPart(part, output);
  const { error, status } = message;
  if (error) printLine(`✗ ${error.message}`, output);
  else if (status) printLine(`(${status})`, output);
}

function printPart(part: NonNullable<Message['parts']>[number], output: Output): void {
  switch (part.type) {
    case 'text': {
      const printer = new MarkdownPrinter(output);
      printer.write(plainText(part.text));
      printer.end();
      if (!part.text.endsWith('\n')) output.write('\n');
      break;
    }
    case 'tool-call':
      printLine(describeCall({ ...part.call, toolName: part.call.name }), output);
      break;
    case 'file':
      printLine(`📎 ${part.file.filename}`, output);
      break;
    case 'citation':
      printLine(describeCitation(part.citation), output);
      break;
  }
}

const printLine = (text: string, output: Output): void =>
  output.write(`${output.dim(plainText(text))}\n`);

/** One line about a call: what it is called with, or what came of it. */
function describeCall({ toolName, status, args, output, error }: ShownCall): string {
  const shown = status === 'isRunning' ? describeFields(args) : describeResult(error ?? output);
  const line = `${marks[status]} ${toolName} ${shown}`.replaceAll(/\s+/g, ' ').trim();
  return line.length > SHOWN ? `${line.slice(0, SHOWN)}…` : line;
}

function describeRequest({ approvalId, toolName }: ApprovalRequestEvent, address: string): string {
  const command = ['sibyl approvals approve', approvalId.slice(0, SHORT_ID), address].join(' ');
  return `? ${toolName} waits for you: ${command.trim()}, or deny`;
}

const describeCitation = ({ marker = '•', title, position, url }: Citation): string =>
  [`${marker} ${title}`, position, url].filter(Boolean).join(', ');

function describeResult(output = ''): string {
  try {
    return describeValue(JSON.parse(output));
  } catch {
    return output;
  }
}

const describeFields = (fields: object): string =>
  Object.entries(fields)
    .map(([name, value]) => `${name}: ${describeValue(value)}`)
    .join(', ');

function describeValue(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(describeNested).join(', ');
  return typeof value === 'object' && value !== null ? describeFields(value) : String(value);
}

/** Of an object that has a text, that text. */
function describeNested(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value);
  return 'text' in value && typeof value.text === 'string' ? value.text : JSON.stringify(value);
}

/** What a tool asks, and how it can be answered. */
export function printQuestion({ data, schema }: Question, output: Output): void {
  printLine(`? ${data === undefined ? describeAsked(schema) : describeValue(data)}`, output);
  printLine(`  ${describeAnswers(schema)}; another message cancels the question`, output);
}

type Schema = Question['schema'];

function describeAsked(schema: Schema): string {
  const { name, schema: asked } = findField(schema);
  const { description = asked.title ?? name } = asked;
  return ['A tool asks you a question', description].filter(Boolean).join(': ');
}

function describeAnswers(schema: Schema): string {
  const { name = 'text', schema: asked } = findField(schema);
  if (asked.type === 'boolean') return '/answer yes, or /answer no';
  if (Array.isArray(asked.enum))
    return asked.enum.map((choice) => `/answer ${choice}`).join(', or ');
  if (isSimple(asked)) return `/answer <${name}>`;
  const fields = Object.entries(readProperties(asked));
  if (fields.length === 0) return '/answer <JSON>';
  const required = new Set([asked.required ?? []].flat());
  const describeSome = (isRequired: boolean) =>
    fields
      .filter(([field]) => required.has(field) === isRequired)
      .map(([field, schema]) => `"${field}": ${describeType(schema)}`)
      .join(', ');
  const optional = describeSome(false);
  return `/answer {${describeSome(true)}}${optional && `, optionally with ${optional}`}`;
}

function describeType({ type = 'value', enum: choices = type, items }: Schema): string {
  if (type === 'array' && items) return `[${describeType(items as Schema)}]`;
  return `<${[choices].flat().join(' or ')}>`;
}

/** Reads an answer as it is typed: the value of a single field, or JSON. */
export function parseAnswer(text: string, schema: Schema): unknown {
  if (text === '') throw noAnswer(schema);
  const { name, schema: asked } = findField(schema);
  const isWhole = name !== undefined && text.startsWith('{');
  const value = isWhole ? parseJson(text, schema) : parseValue(text, asked, schema);
  return name === undefined || isWhole ? value : { [name]: value };
}

function parseValue(text: string, asked: Schema, whole: Schema): unknown {
  if (asked.type === 'boolean' && /^(y|yes|true)$/i.test(text)) return true;
  if (asked.type === 'boolean' && /^(n|no|false)$/i.test(text)) return false;
  return asked.type === 'string' ? text : parseJson(text, whole);
}

function parseJson(text: string, schema: Schema): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw noAnswer(schema);
  }
}

const noAnswer = (schema: Schema) =>
  new CommandError(`This does not answer the question. Write ${describeAnswers(schema)}`);

/** The only field of an object, or else all that is asked. */
function findField(schema: Schema): { readonly name?: string; readonly schema: Schema } {
  const [first, ...others] = Object.entries(readProperties(schema));
  if (!first || others.length > 0) return { schema: omitNull(schema) };
  return { name: first[0], schema: omitNull(first[1]) };
}

/** What is asked if it may also be null, which only JSON can say. */
function omitNull(schema: Schema): Schema {
  const [type, ...others] = [schema.type].flat().filter((each) => each !== 'null');
  return type === undefined || others.length > 0 ? schema : { ...schema, type };
}

const readProperties = ({ properties }: Schema) =>
  (typeof properties === 'object' ? properties : {}) as Readonly<Record<string, Schema>>;

const isSimple = ({ type }: Schema) => ['string', 'number', 'integer'].includes(String(type));
