import { createInterface, type Interface } from 'node:readline/promises';
import { type OracleClient, OracleClientError } from '@sibyl/client';
import { type Call, type Command } from '../command.js';
import { type OpenOracle, openOracle } from '../oracle/open-oracle.js';
import { ReplyPrinter } from '../oracle/reply-printer.js';

/** Talks to an oracle in the terminal. */
export const chat: Command = {
  name: 'chat',
  summary: 'Talk to an oracle in the terminal',
  usage: ['[url] [--session <id>]', '[url] --message <text>'],
  details:
    'Ctrl-C stops the answer, and once more leaves. With --message one message is sent, its answer written, and that is all.',
  options: {
    session: { type: 'string', short: 's', value: 'id', summary: 'Go on in this session' },
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
  try {
    for await (const message of messagesOf(terminal)) {
      await answerUntilStopped(terminal, oracle.client, { sessionId, message }, call);
    }
  } finally {
    terminal.close();
  }
  return 0;
}

/** What the user writes, line by line, until they leave. */
async function* messagesOf(terminal: Interface): AsyncGenerator<string> {
  let isOpen = true;
  terminal.once('close', () => {
    isOpen = false;
  });
  // Keeps what is written ahead, as a pipe does.
  const lines = terminal[Symbol.asyncIterator]();
  for (;;) {
    if (isOpen) terminal.prompt();
    const stopListening = onInterrupt(terminal, () => terminal.close());
    const { value, done } = await lines.next();
    stopListening();
    if (done) return;
    if (value.trim()) yield value.trim();
  }
}

/** Listens for Ctrl-C, which a terminal tells and a signal does where there is none. */
function onInterrupt(terminal: Interface, listener: () => void): () => void {
  terminal.on('SIGINT', listener);
  process.on('SIGINT', listener);
  return () => {
    terminal.off('SIGINT', listener);
    process.off('SIGINT', listener);
  };
}

interface Turn {
  readonly sessionId: string;
  readonly message: string;
}

/** A first Ctrl-C ends the turn, not the conversation. */
async function answerUntilStopped(
  terminal: Interface,
  client: OracleClient,
  turn: Turn,
  call: Call,
): Promise<void> {
  const stopListening = onInterrupt(terminal, () => abort(client, turn.sessionId));
  try {
    await answer(client, turn, call);
  } catch (error) {
    if (!(error instanceof OracleClientError)) throw error;
    call.output.note(error.message);
  } finally {
    stopListening();
  }
}

/** What the abort leads to is told by the turn's own end. */
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
