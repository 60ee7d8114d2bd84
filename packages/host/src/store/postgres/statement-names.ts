import { LruMap, textBytes } from '@sibyl/server-kit';

/** Each connection keeps about 20 kB on the server for every statement. */
const MAX_NAMES = 150;

/** Statements that are used more often are worth preparing. */
const MIN_USES = 5;

const MAX_LENGTH = 4_096;
const MAX_COUNTED = 500;
const MAX_COUNTED_BYTES = 1024 * 1024;

/** A statement for all columns fails on the server once a newer host has added one. */
const ALL_COLUMNS = /(?:select|returning) \*|\.\*/i;

/**
 * Names the statements that are used most, so that PostgreSQL parses and plans them once per connection. Statements
 * are never forgotten by the server, so their number is limited.
 */
export class StatementNames {
  private readonly names = new Map<string, string>();
  private readonly uses = new LruMap<string, number>({
    maxEntries: MAX_COUNTED,
    maxBytes: MAX_COUNTED_BYTES,
    measure: (_, sql) => textBytes(sql),
  });

  /** Undefined for a statement that is not worth a name yet. */
  find(sql: string): string | undefined {
    return this.names.get(sql) ?? this.count(sql);
  }

  private count(sql: string): string | undefined {
    if (this.names.size >= MAX_NAMES || sql.length > MAX_LENGTH) return undefined;
    const uses = (this.uses.get(sql) ?? 0) + 1;
    this.uses.set(sql, uses);
    if (uses < MIN_USES || ALL_COLUMNS.test(sql)) return undefined;
    this.uses.delete(sql);
    const name = `sibyl_${this.names.size}`;
    this.names.set(sql, name);
    return name;
  }
}
