import type { Connection } from './connections.js';

/** How far a connection may be behind, in bytes. */
const LIMIT = 2 * 1024 * 1024;
/** From here on a sender that can wait should. */
const FULL = LIMIT / 4;

interface WriteLimitOptions {
  /** How long a connection may take nothing while somebody waits for it. */
  readonly stallMs: number;
  readonly backlog: SocketBacklog;
  /** Called when the connection is too far behind, or takes nothing. */
  readonly drop: () => void;
}

/** Watches what a connection has not taken yet: one that falls too far behind is given up. */
export class WriteLimit {
  private readonly connection: Connection;
  private readonly options: WriteLimitOptions;
  private readonly backlog: BacklogEntry;

  constructor(connection: Connection, options: WriteLimitOptions) {
    this.connection = connection;
    this.options = options;
    this.backlog = options.backlog.open(options.drop);
    connection.on('packetCreate', ({ data }: { data?: string | Buffer }) => {
      if (this.backlog.bytes > LIMIT) options.drop();
      this.backlog.add(typeof data === 'string' ? 2 * data.length : (data?.length ?? 0));
    });
    // What was handed over before has been taken when more is handed over.
    connection.on('flush', () => this.backlog.clear());
    connection.once('close', () => this.backlog.close());
  }

  /** Resolves when the connection has taken most of what it got, or is gone. */
  async room(): Promise<void> {
    while (this.backlog.bytes > FULL && this.connection.readyState === 'open') await this.change();
  }

  private change(): Promise<void> {
    const connection = this.connection;
    const { stallMs, drop } = this.options;
    return new Promise((resolve) => {
      const settle = () => {
        clearTimeout(timer);
        connection.off('flush', settle).off('close', settle);
        resolve();
      };
      const timer = setTimeout(drop, stallMs);
      connection.on('flush', settle).on('close', settle);
    });
  }
}

/** What one connection has not taken yet. */
interface BacklogEntry {
  readonly bytes: number;
  add(bytes: number): void;
  /** The connection has taken all of it. */
  clear(): void;
  close(): void;
}

/** What all sockets together have not taken yet; beyond the limit the one that is furthest behind is given up. */
export class SocketBacklog {
  private readonly entries = new Map<BacklogEntry, () => void>();
  private total = 0;

  constructor(private readonly maxBytes: number) {}

  get bytes(): number {
    return this.total;
  }

  open(drop: () => void): BacklogEntry {
    let bytes = 0;
    const change = (to: number) => {
      if (!this.entries.has(entry)) return;
      this.total += to - bytes;
      bytes = to;
    };
    const entry: BacklogEntry = {
      get bytes() {
        return bytes;
      },
      add: (more) => {
        change(bytes + more);
        while (this.total > this.maxBytes) this.dropFurthestBehind();
      },
      clear: () => change(0),
      close: () => {
        change(0);
        this.entries.delete(entry);
      },
    };
    this.entries.set(entry, drop);
    return entry;
  }

  private dropFurthestBehind(): void {
    const [furthest] = [...this.entries].sort(([a], [b]) => b.bytes - a.bytes);
    if (!furthest) return;
    const [entry, drop] = furthest;
    entry.close();
    drop();
  }
}
