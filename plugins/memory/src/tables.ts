import { readTerms } from '@sibyl/plugin-kit/search';
import {
  bigint,
  bytes,
  defineTable,
  type Row,
  type TableTypes,
  text,
} from '@sibyl/plugin-kit/tables';
import { sql } from 'kysely';

export const facts = defineTable(
  'memory_facts',
  {
    owner: text(),
    id: text(),
    /** The person that it is about, if it is not the owner; empty if it is. */
    sub_user: text().default(''),
    text: text(),
    created_at: bigint(),
    updated_at: bigint().optional(),
    /** Where it was learned; null if the user wrote it. */
    session_id: text().optional(),
    /** The model of its vector; null if it has none of its current text. */
    vector_model: text().optional(),
    /** Facts with the same one are the same. */
    normalized_text: text(),
    /** The words by which it is found. */
    words: text(),
  },
  {
    key: ['owner', 'id'],
    indexes: {
      memory_facts_by_owner: { on: ['owner', 'created_at'] },
      memory_facts_to_embed: { on: ['owner', 'id'], where: 'vector_model is null' },
    },
    // On SQLite, a search reads the facts of its user.
    statements: {
      postgres: [
        "create index memory_facts_by_term on memory_facts using gin (array_to_tsvector(string_to_array(words, ' ')))",
      ],
    },
  },
);

export type FactRow = Row<typeof facts>;

/** The meaning of facts. */
const vectors = defineTable(
  'memory_vectors',
  { owner: text(), id: text(), vector: bytes() },
  { key: ['owner', 'id'], isDerived: true },
);

export const tables = [facts, vectors] as const;

/** Facts about one person. */
export const FACTS_PER_PERSON = 1000;

export type MemoryTables = TableTypes<typeof tables>;

/** The words as PostgreSQL searches them, literally as in the index. */
export const TERMS = sql`array_to_tsvector(string_to_array(words, ' '))`;

/** Whose facts: those about one person, about the owner (an empty text), or all that the owner has. */
export interface About {
  readonly owner: string;
  readonly subUser?: string | undefined;
}

/** Computed here, since SQLite changes only ASCII letters to lower case. */
export const normalizeText = (text: string): string => text.normalize('NFC').toLowerCase();

/** Without accents, and in pairs of characters where words have no spaces between them, on both engines. */
export const toWords = (text: string): string =>
  [...readTerms(text)].map((term) => term.text).join(' ');
