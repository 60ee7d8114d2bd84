import { randomUUID } from 'node:crypto';
import { type ImportedCounts, OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { type Fact, SubUser, wholeNumber } from '@sibyl/protocol';
import type { Kysely, Selectable } from 'kysely';
import { z } from 'zod';
import { type FoundRow, selectFacts, toFact } from './fact-search.js';
import type { FactVectors } from './fact-vectors.js';
import {
  type About,
  FACTS_PER_PERSON,
  type FactRow,
  type MemoryTables,
  normalizeText,
  toWords,
} from './tables.js';

export const FACT_LENGTH = 1000;

/** Query of `GET /memory`. */
export const ListFacts = z.strictObject({
  q: z
    .string()
    .trim()
    .min(1)
    .max(500)
    .optional()
    .describe('Words to search for; best matches first'),
  limit: wholeNumber({ min: 1, max: 100 }).default(50),
  offset: wholeNumber({ min: 0 }).default(0),
});
export type ListFacts = z.infer<typeof ListFacts>;

/** Body of `POST /memory` and `PATCH /memory/:id`. */
export const FactText = z
  .strictObject({ text: z.string().trim().min(3).max(FACT_LENGTH) })
  .meta({ id: 'FactText' });
export type FactText = z.infer<typeof FactText>;

/** Reply of `DELETE /memory/:id`. */
export const FactForgotten = z.object({ message: z.string() }).meta({ id: 'FactForgotten' });
export type FactForgotten = z.infer<typeof FactForgotten>;

/** All that one user may have. */
const FACTS_PER_OWNER = 10_000;

/** Stores the facts about users; every query is limited to one owner. */
export class FactStore {
  constructor(
    private readonly database: PluginDatabase<MemoryTables>,
    private readonly vectors?: FactVectors | undefined,
  ) {}

  /** Stores a fact, or returns the one with the same text. */
  add(fact: NewFact): Promise<Fact> {
    const { owner, subUser = '', text, sessionId } = fact;
    return this.write(owner, async (tables) => {
      const known = await findByText(tables, { owner, subUser }, text);
      if (known) return toFact(known);
      await assertRoom(tables, { owner, subUser });
      const learned = { session_id: sessionId ?? null, sub_user: subUser };
      return toFact(await insertFact(tables, { owner, text, ...learned }));
    });
  }

  /** Replaces the text of a fact; undefined if this owner has no such fact. */
  change({ owner, id, text }: FactText & FactKey): Promise<Fact | undefined> {
    return this.write(owner, async (tables) => {
      const changed = await selectFacts(tables, { owner }).where('id', '=', id).executeTakeFirst();
      if (!changed) return undefined;
      const same = await findByText(tables, { owner, subUser: changed.sub_user }, text);
      if (same && same.id !== id)
        throw new OracleError('bad_request', { message: 'There is another fact with this text' });
      const row = await tables
        .updateTable('memory_facts')
        .set({
          text,
          normalized_text: normalizeText(text),
          words: toWords(text),
          updated_at: Date.now(),
          vector_model: null,
        })
        .where('owner', '=', owner)
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirst();
      return row && toFact(row);
    });
  }

  /** Stores facts of an export that are not there yet, as far as there is room. */
  importAll(owner: string, facts: readonly unknown[]): Promise<ImportedCounts> {
    return this.write(owner, async (tables) => {
      let room = FACTS_PER_OWNER - (await countFacts(tables, { owner }));
      const known = new Map<string, number>();
      let [stored, refused] = [0, 0];
      for (const fact of facts) {
        const { data } = ExportedFact.safeParse(fact);
        if (data && (await isKnown(tables, owner, data))) continue;
        const subUser = data?.sub_user ?? '';
        const count = known.get(subUser) ?? (await countFacts(tables, { owner, subUser }));
        const fits = data !== undefined && count < FACTS_PER_PERSON && room > 0;
        if (fits) await insertFact(tables, { ...data, owner });
        known.set(subUser, count + Number(fits));
        room -= Number(fits);
        stored += Number(fits);
        refused += Number(!fits);
      }
      return { stored, refused };
    });
  }

  /** Newest first. */
  async list(page: About & { readonly limit: number; readonly offset: number }): Promise<Fact[]> {
    const rows = await selectFacts(this.database.tables, page)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(page.limit)
      .offset(page.offset)
      .execute();
    return rows.map(toFact);
  }

  count(about: About): Promise<number> {
    return countFacts(this.database.tables, about);
  }

  /** Whether there was such a fact. */
  remove({ owner, subUser, id }: FactKey): Promise<boolean> {
    return this.database.write(async (tables) => {
      const facts = tables.deleteFrom('memory_facts').where('owner', '=', owner);
      const { numDeletedRows } = await (subUser === undefined
        ? facts
        : facts.where('sub_user', '=', subUser)
      )
        .where('id', '=', id)
        .executeTakeFirst();
      if (numDeletedRows === 0n) return false;
      await tables
        .deleteFrom('memory_vectors')
        .where('owner', '=', owner)
        .where('id', '=', id)
        .execute();
      return true;
    });
  }

  /** Writes texts, whose vectors are computed afterwards. */
  private async write<T>(owner: string, unit: (tables: Tables) => Promise<T>): Promise<T> {
    const result = await this.database.writeFor(owner, unit);
    this.vectors?.wake();
    return result;
  }
}

interface FactKey extends About {
  readonly id: string;
}

interface NewFact extends About {
  readonly text: string;
  readonly sessionId?: string | undefined;
}

const Time = z.int().min(0).max(253_402_300_799_999);

/** A row of an export, which anyone may have written. */
const ExportedFact = z.object({
  id: z.string().regex(/^[A-Za-z0-9-]{1,64}$/),
  text: z.string().trim().min(3).max(FACT_LENGTH),
  created_at: Time,
  updated_at: Time.nullable().catch(null),
  session_id: z.string().max(128).nullable().catch(null),
  sub_user: z.union([z.literal(''), SubUser]).default(''),
});

type Tables = Kysely<MemoryTables>;

function findByText(tables: Tables, about: About, text: string) {
  return selectFacts(tables, about)
    .where('normalized_text', '=', normalizeText(text))
    .executeTakeFirst();
}

async function isKnown(
  tables: Tables,
  owner: string,
  { id, text, sub_user: subUser }: Pick<FactToInsert, 'text' | 'sub_user'> & Pick<FactKey, 'id'>,
): Promise<boolean> {
  const same = await selectFacts(tables, { owner }).where('id', '=', id).executeTakeFirst();
  return same !== undefined || (await findByText(tables, { owner, subUser }, text)) !== undefined;
}

type FactToInsert = Pick<Selectable<FactRow>, 'owner' | 'sub_user' | 'text' | 'session_id'> &
  Partial<Pick<FactRow, 'id' | 'created_at' | 'updated_at'>>;

async function insertFact(tables: Tables, fact: FactToInsert): Promise<FoundRow> {
  const row = {
    id: randomUUID(),
    created_at: Date.now(),
    updated_at: null,
    vector_model: null,
    ...fact,
    normalized_text: normalizeText(fact.text),
    words: toWords(fact.text),
  };
  await tables.insertInto('memory_facts').values(row).execute();
  return row;
}

async function countFacts(tables: Tables, about: About): Promise<number> {
  const { total } = await selectFacts(tables, about)
    .clearSelect()
    .select((row) => row.fn.countAll().as('total'))
    .executeTakeFirstOrThrow();
  return Number(total);
}

async function assertRoom(tables: Tables, { owner, subUser }: About): Promise<void> {
  const hasRoom =
    (await countFacts(tables, { owner, subUser })) < FACTS_PER_PERSON &&
    (await countFacts(tables, { owner })) < FACTS_PER_OWNER;
  if (hasRoom) return;
  throw new OracleError('bad_request', {
    message: `There are ${FACTS_PER_PERSON} facts already, or ${FACTS_PER_OWNER} about all; forget some first`,
  });
}
