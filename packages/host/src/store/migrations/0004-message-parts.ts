import type { Kysely } from 'kysely';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** Few, because a message may contain megabytes. */
const ROWS_PER_BATCH = 50;

/** Converts the tool calls, reasoning and attachments of `old_messages` to the parts of `messages`. */
export async function convertParts(tables: Tables): Promise<void> {
  let after = '';
  for (;;) {
    const rows = await selectRows(tables, after).execute();
    for (const row of rows) {
      await tables
        .updateTable('messages')
        .set({ parts: JSON.stringify(buildParts(row as OldMessage)) })
        .where('owner', '=', row.owner)
        .where('id', '=', row.id)
        .execute();
    }
    if (rows.length < ROWS_PER_BATCH) return;
    after = rows.at(-1)?.id;
  }
}

function selectRows(tables: Tables, after: string) {
  return tables
    .selectFrom('old_messages')
    .select(['owner', 'id', 'type', 'content', 'tool_calls', 'reasoning', 'attachments'])
    .where('id', '>', after)
    .where((e) =>
      e.or([
        e('tool_calls', 'is not', null),
        e('reasoning', 'is not', null),
        e('attachments', 'is not', null),
      ]),
    )
    .orderBy('id')
    .limit(ROWS_PER_BATCH);
}

interface OldMessage {
  readonly content: string;
  readonly tool_calls: string | null;
  readonly reasoning: string | null;
  readonly attachments: string | null;
}

/** In the order that is most likely: the old columns do not show it. */
function buildParts({ content, tool_calls, reasoning, attachments }: OldMessage): object[] {
  const calls: unknown[] = JSON.parse(tool_calls ?? '[]');
  const files: unknown[] = JSON.parse(attachments ?? '[]');
  return [
    ...(reasoning ? [{ type: 'reasoning', text: reasoning }] : []),
    ...calls.map((call) => ({ type: 'tool-call', call })),
    ...(content ? [{ type: 'text', text: content }] : []),
    ...files.map((file) => ({ type: 'file', file })),
  ];
}
