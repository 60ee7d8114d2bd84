import { basename } from 'node:path';
import { createInterface, type Interface } from 'node:readline/promises';
import {
  type Attachment,
  type MessageToSend,
  type OracleClient,
  OracleClientError,
  type Question,
  type ReplyPart,
} from '@sibyl/client';
import { type Call, type Command, CommandError, suggest, UsageError } from '../command.js';
import { type OpenOracle, openFile, openOracle } from '../environment.js';
import { Interrupts } from '../interruptible.js';
import { parseAnswer, printQuestion } from '../questions.js';
import { ReplyPrinter } from '../reply-printer.js';
import { plainText, table } from '../terminal.js';

/** Talks to an oracle in the terminal. */
export const chat: Command = {
  name: 'chat',
  summary: 'Talk to an oracle in the terminal',
  usage: ['[url] [--session <id>]', '[url] --message <text>'],
  details:
    'Ctrl-C stops the answer, and once more leaves. With --message one message is sent, its answer written, and that is all. In a conversation, /help lists what else you can do.',
  options: {
    session: { type: 'string', short: 's', value: 'id', summary: 'Continue this session' },
    message: { type: 'string', short: 'm', value: 'text', summary: 'Send this and leave' },
    model: { type: 'string', value: 'id', summary: 'The model that answers' },
    attach: {
      type: 'string',
      short: 'a',
      value: 'path',
      multiple: true,
      summary: 'Send this file with the first message',
    },
  },
  async run(call) {
    const { args, options } = call;
    if (String(options.message ?? '-').trim() === '')
      throw new UsageError('Give a message that is not empty');
    if (call.output.format === 'json' && options.message === undefined)
      throw new UsageError('--json needs --message: a conversation has more than one answer');
    const oracle = await openOracle(args[0], call.output);
    const conversation = new Conversation(oracle, String(options.session ?? ''), call);
    try {
      await conversation.prepare();
      if (typeof options.message === 'string') return await sendOne(conversation, options.message);
      return await converse(conversation);
    } finally {
      oracle.client.close();
    }
  },
};

async function sendOne(conversation: Conversation, text: string): Promise<number> {
  const { call, oracle, sessionId } = conversation;
  const message = conversation.toMessage(text);
  // A first Ctrl-C ends the turn, and with it the command; a second one does not wait for that.
  process.once('SIGINT', () => conversation.abort());
  if (call.output.format === 'json') {
    const reply = await oracle.client.messages.send(sessionId, message);
    call.output.result(reply, '');
    return reply.status === 'finished' ? 0 : 1;
  }
  return (await conversation.answer(message)) === 'finished' ? 0 : 1;
}

async function converse(conversation: Conversation): Promise<number> {
  const { oracle, sessionId, call } = conversation;
  const { output } = call;
  output.note(
    output.dim(
      `Talking to ${oracle.name} as ${oracle.signer.did}, session ${sessionId}. /help lists commands.`,
    ),
  );
  if (call.options.session !== undefined) await conversation.showQuestion();
  const { stdin, stdout, stderr } = process;
  // The prompt is for people: a pipe gets none, and a file the answers alone.
  const prompts = stdin.isTTY && { output: stdout.isTTY ? stdout : stderr };
  const terminal = createInterface({ input: stdin, ...prompts });
  const interrupts = new Interrupts(terminal);
  try {
    for await (const line of readLines(terminal)) {
      if (line === '/quit') break;
      interrupts.stopTurn = () => conversation.abort();
      await conversation.enter(line);
      interrupts.stopTurn = undefined;
    }
  } finally {
    terminal.close();
  }
  return 0;
}

/** What the user writes, line by line, until they leave. */
async function* readLines(terminal: Interface): AsyncGenerator<string> {
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

/** Text that begins with a command; `//` sends a slash. */
const COMMAND = /^\/([a-z]+)(?:\s+(.*))?$/s;

const HELP = table([
  ['/help', 'This list'],
  ['/model', 'The models; /model <id> chooses the one that answers next'],
  ['/retry', 'Ask for another answer to the last message'],
  ['/answer <text>', 'Answer the question of a tool'],
  ['/attach <path>', 'Send a file with the next message'],
  ['/new', 'Begin another session'],
  ['/quit', 'Leave'],
  ['//…', 'Send a message that begins with /'],
]);

/** A conversation with what is chosen for its next message. */
class Conversation {
  private model: string | undefined;
  private attachments: Attachment[] = [];
  /** The question that the user has seen last. */
  private shownQuestion: string | undefined;

  constructor(
    readonly oracle: OpenOracle,
    public sessionId: string,
    readonly call: Call,
  ) {}

  private get client(): OracleClient {
    return this.oracle.client;
  }

  /** Does what the options say, before the first message. */
  async prepare(): Promise<void> {
    const { model, attach } = this.call.options;
    if (model !== undefined) await this.findModel(String(model));
    for (const path of [attach ?? []].flat()) await this.attach(String(path));
    // Last, so that a mistake in an option leaves no empty session behind.
    this.sessionId ||= (await this.client.sessions.create()).sessionId;
  }

  /** Sends a line, or does what it says; reports errors, so that the conversation can continue. */
  async enter(line: string): Promise<void> {
    const { attachments } = this;
    try {
      const [, name, rest = ''] = COMMAND.exec(line) ?? [];
      if (name === undefined) await this.answer(this.toMessage(line.replace(/^\/\//, '/')));
      else await this.runCommand(name, rest.trim());
    } catch (error) {
      const isExpected = error instanceof OracleClientError || error instanceof CommandError;
      if (!isExpected) throw error;
      // They go with the next message instead.
      this.attachments = attachments;
      this.call.output.note(plainText(error.message));
    }
  }

  toMessage(message: string): MessageToSend {
    const { model, attachments } = this;
    this.attachments = [];
    return {
      message,
      ...(model !== undefined && { model }),
      ...(attachments.length > 0 && { attachments }),
    };
  }

  /** Writes the answer as it comes; resolves to how the turn ended. */
  async answer(message: MessageToSend): Promise<string> {
    return this.print(this.client.stream(this.sessionId, message));
  }

  private async print(parts: AsyncIterable<ReplyPart>): Promise<string> {
    const printer = new ReplyPrinter(this.call.output, this.call.args[0]);
    for await (const part of parts) printer.print(part);
    if (printer.isAsked) await this.showQuestion();
    return printer.status;
  }

  async showQuestion(): Promise<void> {
    const [question] = await this.listQuestions();
    if (!question) return;
    const { args, options, output } = this.call;
    printQuestion(question, output);
    this.shownQuestion = question.id;
    const command = ['sibyl chat', ...args, '-s', this.sessionId].join(' ');
    if (options.message !== undefined) output.note(`Answer in: ${command}`);
  }

  private async listQuestions(): Promise<readonly Question[]> {
    const questions = await this.client.questions.list(this.sessionId);
    return questions.filter(({ kind }) => kind !== 'tool_call');
  }

  /** Answers the question that the user has seen; another one is shown first. */
  private async answerQuestion(text: string): Promise<void> {
    const questions = await this.listQuestions();
    if (questions.length === 0) throw new CommandError('No question waits for an answer');
    const question = questions.find(({ id }) => id === this.shownQuestion);
    if (!question) {
      this.call.output.note('Your answer was not sent. The question is now:');
      return this.showQuestion();
    }
    const value = parseAnswer(text, question.schema);
    const { runId, pending } = await this.client.questions.answer(question.id, value);
    if (pending?.length) await this.showQuestion();
    else await this.print(this.client.runs.join(runId));
  }

  /** The end of the turn reports the outcome. */
  abort(): void {
    this.client.abort(this.sessionId).catch(() => undefined);
  }

  private async runCommand(name: string, rest: string): Promise<void> {
    const commands: Readonly<Record<string, () => Promise<unknown>>> = {
      help: async () => this.call.output.write(`${HELP}\n`),
      model: () => this.chooseModel(rest),
      retry: () => this.retry(),
      answer: () => this.answerQuestion(rest),
      attach: () => this.attach(rest),
      new: () => this.beginAnother(),
    };
    const run = Object.hasOwn(commands, name) ? commands[name] : undefined;
    if (run) await run();
    else
      throw new CommandError(
        `There is no /${name}.${suggest(name, Object.keys(commands)).replace('"', '"/')} /help lists the commands; // sends a text that begins with /.`,
      );
  }

  private async chooseModel(id: string): Promise<void> {
    const { output } = this.call;
    if (id) {
      await this.findModel(id);
      output.write(plainText(`${id} answers from now on\n`));
      return;
    }
    const { models, default: standard } = await this.client.models.list();
    const current = this.model ?? standard;
    const rows = models.map((each) => [
      `${each.id === current ? '*' : ' '} ${each.id}`,
      each.label,
    ]);
    output.write(plainText(`${table(rows)}\n`));
  }

  private async findModel(id: string): Promise<void> {
    const ids = (await this.client.models.list()).models.map((model) => model.id);
    if (!ids.includes(id))
      throw new CommandError(
        `The oracle does not have the model "${id}".${suggest(id, ids)} /model lists them.`,
      );
    this.model = id;
  }

  private async retry(): Promise<void> {
    const messages = await this.client.messages.list(this.sessionId);
    const last = messages.at(-1);
    if (!last) throw new CommandError('There is nothing to retry yet: send a message first');
    const model = this.model === undefined ? {} : { model: this.model };
    await this.answer({ regenerate: last.id, ...model });
  }

  private async attach(path: string): Promise<void> {
    if (!path) throw new CommandError('Name the file: /attach <path>');
    const content = await openFile(path);
    const { output } = this.call;
    const sending = this.client.files.upload(content, { name: basename(path) });
    const { fileId, name, mediaType } = await output.progress('Uploading', sending);
    this.attachments.push({ fileId, filename: name, mimetype: mediaType });
    output.note(output.dim(plainText(`📎 ${name} goes with the next message`)));
  }

  private async beginAnother(): Promise<void> {
    this.sessionId = (await this.client.sessions.create()).sessionId;
    this.call.output.note(this.call.output.dim(`Session ${this.sessionId}`));
  }
}
