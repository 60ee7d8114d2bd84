import { createInterface, type Interface } from 'node:readline/promises';
import { type OracleClient, OracleClientError, type ReplyPart } from '@sibyl/client';
import type { Call, Command } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { type Output, plainText } from '../terminal.js';

/** Talks to an oracle in the terminal. */
export const chat: Command = {
  name: 'chat',
  summary: 'Talk to an oracle in the terminal',
  usage: ['[url] [--session <id>]', '[url] --message <text>'],
  details:
    'Ctrl-C stops the answer, and once more leaves. With --message one message is sent, its answer written, and that is all.',
  options: {
    session: { type: 'string', short: 's', value: 'id', summary: 'Continue this session' },
    message: { type: 'string', short: 'm', value: 'text', summary: 'Send this and leave' },
  },
  async run(call) {
    const { args, options } = call;
    const oracle = await openOracle(args[0], call.output);
    const sessionId = String(options.session ?? (await oracle.client.sessions.create()).sessionId);
    try {
      if (typeof options.message === 'string') return await sendOne(oracle, sessionId, call);
      return await converse(oracle, sessionId, call);
    } finally {
      oracle.client.close();
    }
  },
};

async function sendOne(oracle: OpenOracle, sessionId: string, call: Call): Promise<number> {
  const message = String(call.options.message);
  if (call.output.format === 'json') {
    call.output.result(await oracle.client.messages.send(sessionId, message), '');
    return 0;
  }
  // A first Ctrl-C ends the turn, and with it the command; a second one does not wait for that.
  process.once('SIGINT', () => abort(oracle.client, sessionId));
  const status = await answer(oracle.client, { sessionId, message }, call);
  return status === 'finished' ? 0 : 1;
}

async function converse(oracle: OpenOracle, sessionId: string, call: Call): Promise<number> {
  const { output } = call;
  output.note(
    output.dim(`Talking to ${oracle.name} as ${oracle.signer.did}, session ${sessionId}`),
  );
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const interrupts = new Interrupts(terminal);
  try {
    for await (const message of readMessages(terminal)) {
      interrupts.stopTurn = () => abort(oracle.client, sessionId);
      await answerOrReport(oracle.client, { sessionId, message }, call);
      interrupts.stopTurn = undefined;
    }
  } finally {
    terminal.close();
  }
  return 0;
}

/** What the user writes, line by line, until they leave. */
async function* readMessages(terminal: Interface): AsyncGenerator<string> {
  let isOpen = true;
  terminal.once('close', () => {
    isOpen = false;
  });
  // Keeps what is written ahead, as a pipe does.
  const lines = terminal[Symbol.asyncIterator]();
  for (;;) {
    if (isOpen) terminal.prompt();
    const { value, done } = await lines.next();
    if (done) return;
    if (value.trim()) yield value.trim();
  }
}

/**
 * Listens for Ctrl-C as long as the terminal is open: an event of the terminal, or a signal where there is no terminal.
 * The first one during a turn ends the turn, any other one the conversation.
 */
class Interrupts {
  stopTurn: (() => void) | undefined;

  constructor(terminal: Interface) {
    const interrupt = () => {
      const { stopTurn } = this;
      this.stopTurn = undefined;
      if (stopTurn) stopTurn();
      else terminal.close();
    };
    terminal.on('SIGINT', interrupt);
    process.on('SIGINT', interrupt);
    terminal.once('close', () => process.off('SIGINT', interrupt));
  }
}

interface Turn {
  readonly sessionId: string;
  readonly message: string;
}

async function answerOrReport(client: OracleClient, turn: Turn, call: Call): Promise<void> {
  try {
    await answer(client, turn, call);
  } catch (error) {
    if (!(error instanceof OracleClientError)) throw error;
    call.output.note(error.message);
  }
}

/** The end of the turn reports the outcome. */
function abort(client: OracleClient, sessionId: string): void {
  client.abort(sessionId).catch(() => undefined);
}

/** Writes the answer as it comes; resolves to how the turn ended. */
async function answer(
  client: OracleClient,
  { sessionId, message }: Turn,
  { output }: Call,
): Promise<string> {
  const printer = new ReplyPrinter(output);
  for await (const part of client.stream(sessionId, message)) printer.print(part);
  return printer.status;
}

const SHOWN = 200;

const marks = { isRunning: '⚙', done: '✓', error: '✗' } as const;

/** Writes a reply to the terminal as it arrives: text unchanged, everything else as short lines between. */
class ReplyPrinter {
  status = '';
  private isInLine = false;

  constructor(private readonly output: Output) {}

  print(part: ReplyPart): void {
    switch (part.event) {
      case 'message':
        this.text(part.data.content);
        break;
      case 'tool_call':
      case 'action_call':
        this.call(part.data);
        break;
      case 'router_update':
        this.line(`→ ${part.data.to ?? ''} ${part.data.step}`);
        break;
      case 'warning':
        this.line(`! ${part.data.message}`);
        break;
      case 'error':
        this.line(`✗ ${part.data.error}`);
        break;
      case 'done':
        this.end(part.data.status);
        break;
    }
  }

  private text(text: string): void {
    this.output.write(plainText(text));
    this.isInLine = !text.endsWith('\n');
  }

  private call(call: {
    toolName: string;
    status: keyof typeof marks;
    args: object;
    output?: string | undefined;
  }): void {
    const shown = call.status === 'isRunning' ? JSON.stringify(call.args) : (call.output ?? '');
    this.line(`${marks[call.status]} ${call.toolName} ${shown.slice(0, SHOWN)}`);
  }

  private end(status: string): void {
    this.status = status;
    if (status !== 'finished') this.line(`(${status})`);
    else if (this.isInLine) this.output.write('\n');
  }

  private line(text: string): void {
    if (this.isInLine) this.output.write('\n');
    this.isInLine = false;
    this.output.write(`${this.output.dim(plainText(text))}\n`);
  }
}
