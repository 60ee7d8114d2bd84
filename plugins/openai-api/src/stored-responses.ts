import type { PluginDatabase } from '@sibyl/plugin-kit';
import { bigint, defineTable, integer, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import type { ResponseRequest } from './schemas.js';

/** What a response shows besides the answer of its run. */
export interface ResponseFacts {
  readonly model: string;
  readonly instructions: string | null;
  readonly previousId: string | null;
  readonly tools: readonly object[];
  readonly toolChoice: ResponseRequest['tool_choice'];
  readonly metadata: Readonly<Record<string, string>>;
  readonly isBackground: boolean;
  readonly isStored: boolean;
}

/** A response; its id is that of its run. */
export interface StoredResponse {
  readonly owner: string;
  readonly id: string;
  readonly sessionId: string;
  /** Whether the session exists for responses only. */
  readonly isUnlisted: boolean;
  readonly facts: ResponseFacts;
}

const responses = defineTable(
  'openai_api_responses',
  {
    owner: text(),
    id: text(),
    session_id: text(),
    unlisted: integer(),
    /** JSON. */
    facts: text(),
    created_at: bigint(),
  },
  { key: ['owner', 'id'] },
);

export const tables = [responses] as const;

type ResponseTables = TableTypes<typeof tables>;

/** Responses are kept as long as unlisted sessions are. */
const KEPT_MS = 30 * 86_400_000;

type ResponseId = Pick<StoredResponse, 'owner' | 'id'>;

/** The responses of each user. */
export class ResponseStore {
  constructor(private readonly database: PluginDatabase<ResponseTables>) {}

  async add({ owner, id, sessionId, isUnlisted, facts }: StoredResponse): Promise<void> {
    const now = this.database.now();
    const row = { owner, id, session_id: sessionId, facts: JSON.stringify(facts) };
    await this.database.write(async (tables) => {
      await tables
        .deleteFrom('openai_api_responses')
        .where('owner', '=', owner)
        .where('created_at', '<', now - KEPT_MS)
        .execute();
      await tables
        .insertInto('openai_api_responses')
        .values({ ...row, unlisted: isUnlisted ? 1 : 0, created_at: now })
        .onConflict((c) => c.columns(['owner', 'id']).doNothing())
        .execute();
    });
  }

  async find({ owner, id }: ResponseId): Promise<StoredResponse | undefined> {
    const row = await this.database.tables
      .selectFrom('openai_api_responses')
      .selectAll()
      .where('owner', '=', owner)
      .where('id', '=', id)
      .executeTakeFirst();
    if (!row) return undefined;
    const { session_id: sessionId, unlisted, facts } = row;
    return { owner, id, sessionId, isUnlisted: unlisted === 1, facts: JSON.parse(facts) };
  }

  /** Deletes a response; returns whether its session has no other. */
  delete({ owner, id, sessionId }: StoredResponse): Promise<boolean> {
    return this.database.write(async (tables) => {
      await tables
        .deleteFrom('openai_api_responses')
        .where('owner', '=', owner)
        .where('id', '=', id)
        .execute();
      const other = await tables
        .selectFrom('openai_api_responses')
        .select('id')
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .limit(1)
        .executeTakeFirst();
      return other === undefined;
    });
  }
}
