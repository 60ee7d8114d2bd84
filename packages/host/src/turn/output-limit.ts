import { OracleError } from '@sibyl/protocol';
import type { Model, ModelPart } from '../agent/model/model.js';

/** What a tool call counts beside its text: it becomes frames and is kept, however short it is. */
const CALL_CHARACTERS = 500;

interface OutputLimitParts {
  readonly maxCharacters: number;
  /** Called once, when the limit is reached. */
  readonly onReached: (error: OracleError) => void;
}

/** Limits what all models of one turn write together, those of sub-agents and summaries included. */
export class OutputLimit {
  readonly #parts: OutputLimitParts;
  #characters = 0;
  #reached: OracleError | undefined;

  constructor(parts: OutputLimitParts) {
    this.#parts = parts;
  }

  /** The same model, whose answers count. */
  watch(model: Model): Model {
    return {
      ...model,
      stream: (call) => ({
        [Symbol.asyncIterator]: () =>
          new CountedParts(model.stream(call)[Symbol.asyncIterator](), this),
      }),
    };
  }

  /** Throws if it was too much already: no call is worth making any more. */
  assertLeft(): void {
    if (this.#reached) throw this.#reached;
  }

  /** Throws once it is too much. */
  count(part: ModelPart): void {
    this.#characters += charactersIn(part);
    const { maxCharacters, onReached } = this.#parts;
    if (this.#characters <= maxCharacters) return;
    if (this.#reached === undefined) {
      const message = `The turn was stopped after ${maxCharacters} characters, the most that one turn may have on this host.`;
      this.#reached = new OracleError('turn_too_long', { message });
      // Only after the stream that wrote too much is closed: it may not expect to be aborted by its reader.
      setImmediate(onReached, this.#reached);
    }
    throw this.#reached;
  }
}

function charactersIn(part: ModelPart): number {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return part.text.length;
    case 'tool-call':
      return CALL_CHARACTERS + part.call.name.length + part.call.input.length;
    case 'finish':
      return 0;
    default:
      return part satisfies never;
  }
}

/** By hand, not by a generator: this sits between every token and its reader. */
class CountedParts implements AsyncIterator<ModelPart> {
  constructor(
    private readonly source: AsyncIterator<ModelPart>,
    private readonly limit: OutputLimit,
  ) {}

  async next(): Promise<IteratorResult<ModelPart>> {
    this.limit.assertLeft();
    const result = await this.source.next();
    try {
      if (!result.done) this.limit.count(result.value);
      return result;
    } catch (error) {
      // Not waited for: a source stuck in its last step would hold the turn.
      this.source.return?.().catch(() => undefined);
      throw error;
    }
  }

  async return(): Promise<IteratorResult<ModelPart>> {
    await this.source.return?.();
    return { done: true, value: undefined };
  }
}
