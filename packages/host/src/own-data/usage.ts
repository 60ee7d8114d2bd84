import type { Usage } from '@sibyl/protocol';
import { addEntries, toUtcDay, type UsageEntry, type UsageStore } from '../store/usage-store.js';

const DAY_MS = 24 * 60 * 60 * 1000;
const MAX_SESSIONS = 100;

type Sum = Omit<UsageEntry, 'day' | 'session_id' | 'model'>;

const NOTHING: Sum = { turns: 0, input_tokens: 0, output_tokens: 0, cached_tokens: 0, cost: null };

/** Adds up what a user used in the last days, by day, model and session. */
export async function readUsage(store: UsageStore, owner: string, days: number): Promise<Usage> {
  const since = Date.parse(toUtcDay(Date.now() - (days - 1) * DAY_MS));
  const entries = await store.read(owner, since);
  // Entries without a model count each turn once; those of models contain the tokens.
  const sessions = [...sumBy(entries, ({ session_id }) => session_id)]
    .sort(([, a], [, b]) => countTokens(b) - countTokens(a))
    .slice(0, MAX_SESSIONS);
  const titles = await store.readTitles(
    owner,
    sessions.map(([id]) => id),
  );
  const total = entries.reduce((sum, entry) => addEntries(sum, withOwnTurns(entry)), NOTHING);
  return {
    since: toUtcDay(since),
    total: toView(total),
    days: [...sumBy(entries, ({ day }) => day)]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([day, sum]) => ({ day, ...toView(sum) })),
    models: sumModels(entries),
    sessions: sessions.map(([sessionId, sum]) => {
      const title = titles.get(sessionId);
      return { sessionId, ...(title !== undefined && { title }), ...toView(sum) };
    }),
  };
}

function sumModels(entries: readonly UsageEntry[]): Usage['models'] {
  const sums = new Map<string, Sum>();
  for (const entry of entries)
    if (entry.model !== '')
      sums.set(entry.model, addEntries(sums.get(entry.model) ?? NOTHING, entry));
  return [...sums]
    .sort(([, a], [, b]) => countTokens(b) - countTokens(a))
    .map(([model, sum]) => ({ model, ...toView(sum) }));
}

function sumBy(
  entries: readonly UsageEntry[],
  key: (entry: UsageEntry) => string,
): ReadonlyMap<string, Sum> {
  const sums = new Map<string, Sum>();
  for (const entry of entries) {
    const name = key(entry);
    sums.set(name, addEntries(sums.get(name) ?? NOTHING, withOwnTurns(entry)));
  }
  return sums;
}

/** A turn that used two models is one turn. */
const withOwnTurns = (entry: UsageEntry): UsageEntry =>
  entry.model === '' ? entry : { ...entry, turns: 0 };

const countTokens = ({ input_tokens, output_tokens }: Sum) => input_tokens + output_tokens;

const toView = ({ turns, input_tokens, output_tokens, cached_tokens, cost }: Sum) => ({
  turns,
  inputTokens: input_tokens,
  outputTokens: output_tokens,
  cachedTokens: cached_tokens,
  ...(cost !== null && { cost }),
});
