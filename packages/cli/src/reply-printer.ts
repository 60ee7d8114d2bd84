import type { ApprovalRequestEvent, Citation, DoneFrame, Message, ReplyPart } from '@sibyl/client';
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

export const printLine = (text: string, output: Output): void =>
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

export function describeValue(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(describeNested).join(', ');
  return typeof value === 'object' && value !== null ? describeFields(value) : String(value);
}

/** Of an object that has a text, that text. */
function describeNested(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value);
  return 'text' in value && typeof value.text === 'string' ? value.text : JSON.stringify(value);
}
