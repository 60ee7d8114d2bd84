import type { Middleware, SessionState, TurnContext } from '@sibyl/plugin-kit';
import type { Citation } from '@sibyl/protocol';
import { z } from 'zod';
import type { FoundPassage } from '../store/file-text-store.js';
import { SOURCES_STATE } from '../store/plugin-stores.js';

const QUOTE_LENGTH = 200;
/** The oldest are forgotten; their numbers are not used again. */
const MAX_SOURCES = 500;

const State = z
  .object({
    next: z.int().min(1),
    sources: z.array(
      z.object({
        number: z.int(),
        fileId: z.string(),
        n: z.int(),
        title: z.string(),
        position: z.string(),
        quote: z.string(),
      }),
    ),
  })
  // A new object for each session: it is changed below.
  .catch(() => ({ next: 1, sources: [] }));
type State = z.infer<typeof State>;

/** The passages that the model has seen in a session, by the numbers that it cites. */
export class Sources {
  /** Parallel tool calls wait for each other. */
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly state: SessionState) {}

  /** Numbers passages; one that was seen before keeps its number. */
  number(passages: readonly FoundPassage[]): Promise<number[]> {
    const numbered = this.last.then(async () => {
      const state = State.parse(await this.state.get(SOURCES_STATE.key));
      const numbers = passages.map((passage) => findOrAdd(state, passage));
      state.sources = state.sources.slice(-MAX_SOURCES);
      await this.state.set(SOURCES_STATE.key, state);
      return numbers;
    });
    this.last = numbered.catch(() => {});
    return numbered;
  }

  /** The sources that a text cites, in its order. */
  async findCited(text: string): Promise<Citation[]> {
    const numbers = new Set(
      [...text.matchAll(/\[(\d{1,6})\]/g)].map(([, digits]) => Number(digits)),
    );
    if (numbers.size === 0) return [];
    const { sources } = State.parse(await this.state.get(SOURCES_STATE.key));
    return [...numbers].flatMap((number) => {
      const source = sources.find((each) => each.number === number);
      if (!source) return [];
      const { title, fileId, position, quote } = source;
      return [{ title, fileId, position, quote, marker: `[${number}]` }];
    });
  }
}

function findOrAdd(state: State, { fileId, n, file, position, text }: FoundPassage): number {
  const known = state.sources.find((each) => each.fileId === fileId && each.n === n);
  if (known) return known.number;
  const number = state.next;
  state.next += 1;
  const quote = text.slice(0, QUOTE_LENGTH).toWellFormed();
  state.sources.push({ number, fileId, n, title: file, position, quote });
  return number;
}

/** Adds the sources that an answer cites to its message. */
export const createCitationMiddleware = (find: (turn: TurnContext) => Sources): Middleware => ({
  name: 'file-citations',
  // An answer without its list of sources is better than none.
  onFailure: 'skip',
  wrapModel: async (request, next, turn) => {
    const response = await next(request);
    if (request.agent !== 'main') return response;
    for (const citation of await find(turn).findCited(response.text)) turn.emit.citation(citation);
    return response;
  },
});
