import { bigint, defineTable, type Row, text, tsvector } from '@sibyl/plugin-kit/tables';

interface QueueTrigger {
  readonly name: string;
  readonly event: string;
  readonly row: 'new' | 'old';
  readonly source: string;
  readonly condition: string;
}

/** Triggers, because they add no statement to a turn, and miss no change. */
const TRIGGERS: readonly QueueTrigger[] = [
  {
    name: 'search_message_added',
    event: 'insert on messages',
    row: 'new',
    source: 'message',
    condition: "new.content <> ''",
  },
  {
    name: 'search_message_changed',
    event: 'update of content on messages',
    row: 'new',
    source: 'message',
    condition: 'new.content <> old.content',
  },
  {
    name: 'search_message_deleted',
    event: 'delete on messages',
    row: 'old',
    source: 'message',
    // Not if its session was deleted, which is one entry.
    condition:
      'exists (select 1 from sessions s where s.owner = old.owner and s.id = old.session_id)',
  },
  {
    name: 'search_session_added',
    event: 'insert on sessions',
    row: 'new',
    source: 'title',
    condition: "new.title <> 'Untitled'",
  },
  {
    name: 'search_session_named',
    event: 'update of title on sessions',
    row: 'new',
    source: 'title',
    condition: 'new.title <> old.title',
  },
  {
    name: 'search_session_deleted',
    event: 'delete on sessions',
    row: 'old',
    source: 'session',
    condition: 'true',
  },
];

const buildInsert = ({ row, source, condition }: QueueTrigger): string =>
  `insert into search_queue (owner, source, id, version)
    select ${row}.owner, '${source}', ${row}.id, 1 where ${condition}
    on conflict (owner, source, id) do update set version = search_queue.version + 1;`;

/** What has changed since it was indexed; the index of SQLite is a separate file. */
export const searchQueue = defineTable(
  'search_queue',
  {
    owner: text(),
    /** `session`: everything in it. */
    source: text(),
    id: text(),
    /** Counts the changes. */
    version: bigint(),
  },
  {
    key: ['owner', 'source', 'id'],
    isDerived: true,
    statements: {
      sqlite: TRIGGERS.map(
        (trigger) =>
          `create trigger ${trigger.name} after ${trigger.event} begin ${buildInsert(trigger)} end`,
      ),
      postgres: TRIGGERS.flatMap((trigger) => [
        `create function ${trigger.name}() returns trigger language plpgsql as $$
          begin ${buildInsert(trigger)} return null; end $$`,
        `create trigger ${trigger.name} after ${trigger.event} for each row
          execute function ${trigger.name}()`,
      ]),
    },
  },
);

export type SearchQueueRow = Row<typeof searchQueue>;

/** The words of texts. */
export const searchDocuments = defineTable(
  'search_documents',
  {
    owner: text(),
    source: text(),
    id: text(),
    part: bigint(),
    scope: text(),
    created_at: bigint(),
    terms: tsvector(),
  },
  {
    engine: 'postgres',
    key: ['owner', 'source', 'id', 'part'],
    isDerived: true,
    indexes: {
      search_documents_by_scope: { on: ['owner', 'scope'] },
      search_documents_by_time: { on: ['owner', 'created_at'] },
    },
    statements: {
      postgres: [
        // Without the list of pending entries, which every search would have to read.
        `create index search_documents_terms on search_documents
          using gin (terms) with (fastupdate = off)`,
      ],
    },
  },
);
