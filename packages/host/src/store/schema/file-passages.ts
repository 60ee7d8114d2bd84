import { bytes, defineTable, integer, text } from '@sibyl/plugin-kit/tables';

/** The pieces of the texts of files, with a full-text index. */
export const filePassages = defineTable(
  'file_passages',
  {
    owner: text(),
    file_id: text(),
    n: integer(),
    /** The number of the page, sheet, paragraph or line it begins with. */
    place: integer(),
    position: text(),
    /** Words that stand for its owner and its file in the full-text index. */
    scope: text(),
    text: text(),
  },
  {
    key: ['owner', 'file_id', 'n'],
    rowId: 'seq',
    isDerived: true,
    indexes: { file_passages_by_place: { on: ['owner', 'file_id', 'place', 'n'] } },
    statements: {
      sqlite: [
        `create virtual table file_words using fts5(scope, text, content='file_passages', content_rowid='seq', tokenize='unicode61 remove_diacritics 0')`,
        `insert into file_words (file_words, rank) values ('secure-delete', 1)`,
        `create trigger file_passages_added after insert on file_passages begin
          insert into file_words(rowid, scope, text) values (new.seq, new.scope, new.text);
        end`,
        `create trigger file_passages_removed after delete on file_passages begin
          insert into file_words(file_words, rowid, scope, text) values ('delete', old.seq, old.scope, old.text);
        end`,
      ],
      postgres: [
        // Words are letters and digits on both engines: PostgreSQL would take `example.com` for one word.
        `alter table file_passages add column words tsvector generated always as (
          setweight(to_tsvector('simple', scope), 'A') ||
          setweight(to_tsvector('simple', regexp_replace(text, '[[:punct:][:space:]]+', ' ', 'g')), 'D')
        ) stored`,
        'create index file_passages_by_word on file_passages using gin (words)',
      ],
    },
  },
);

/** The meaning of passages, apart from their texts: a search reads all vectors of a user. */
export const fileVectors = defineTable(
  'file_vectors',
  {
    owner: text(),
    file_id: text(),
    n: integer(),
    vector: bytes(),
    /** So that a file that is embedded in part continues where it stopped. */
    model: text(),
  },
  { key: ['owner', 'file_id', 'n'], isDerived: true },
);
