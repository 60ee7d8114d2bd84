import { randomUUID } from 'node:crypto';
import type { ReplyPart } from '@sibyl/protocol';
import type { Logger } from '../logger.js';
import type { Llms, PluginContext, PluginTurn, PluginTurns } from '../plugin-context.js';
import { MemoryKeepers } from './memory-keepers.js';
import { TEST_ORACLE, type TestRuntimeOptions } from './test-options.js';
import { createOracleUcan } from './test-ucan.js';

/** A line that a plugin wrote to the log. */
export interface LogLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly fields: object;
  readonly message: string;
}

/** What stands in for the host. */
export class TestWorld {
  readonly keepers = new MemoryKeepers();
  readonly ucan = createOracleUcan();
  readonly oracle = { did: TEST_ORACLE, name: 'Test oracle' };
  /** What the plugins wrote to the log. */
  readonly log: LogLine[] = [];
  /** What the plugins brought from elsewhere. */
  readonly brought: PluginTurn[] = [];
  readonly #closing: (() => void | Promise<void>)[] = [];

  constructor(readonly options: TestRuntimeOptions) {}

  readonly logger: Logger = {
    info: (fields, message) => void this.log.push({ level: 'info', fields, message }),
    warn: (fields, message) => void this.log.push({ level: 'warn', fields, message }),
    error: (fields, message) => void this.log.push({ level: 'error', fields, message }),
  };

  readonly fetch: PluginContext['fetch'] = async (url, init) => {
    if (this.options.fetch) return this.options.fetch(url, init);
    throw new Error(`There is no network in this test: give createTestRuntime a fetch for ${url}`);
  };

  readonly llm: Llms = {
    get: (role) => ({
      generate: async ({ system, prompt }) => {
        const text = await this.#answer({ role, prompt, ...(system && { system }) });
        const use = { model: 'test', input: prompt.length, output: text.length, cached: 0 };
        return { text, use };
      },
    }),
  };

  readonly turns: PluginTurns = {
    openSession: async () => ({ sessionId: randomUUID() }),
    start: async (turn) => {
      this.brought.push(turn);
      return this.#reply(turn);
    },
    abort: async () => false,
  };

  onClose(task: () => void | Promise<void>): void {
    this.#closing.push(task);
  }

  async close(): Promise<void> {
    for (const task of this.#closing.splice(0).reverse()) await task();
  }

  async #answer(question: Parameters<NonNullable<TestRuntimeOptions['answer']>>[0]) {
    if (this.options.answer) return this.options.answer(question);
    throw new Error('There is no model in this test: give createTestRuntime an answer');
  }

  async *#reply({ sessionId, message }: PluginTurn): AsyncGenerator<ReplyPart> {
    const runId = randomUUID();
    yield { event: 'run', data: { runId, sessionId, requestId: randomUUID() } };
    const content = await this.#answer({ role: 'main', prompt: message });
    yield { event: 'message', data: { content, timestamp: new Date().toISOString() } };
    yield { event: 'done', data: { runId, messageId: randomUUID(), status: 'finished' } };
  }
}
