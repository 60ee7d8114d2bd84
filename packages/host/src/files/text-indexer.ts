import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { DiskSpace } from '../store/disk-space.js';
import type { StoredFile } from '../store/file-store.js';
import { type ClaimKey, type FileTextStore, LEASE_MS } from '../store/file-text-store.js';
import { findDocumentKind } from './detect-type.js';
import { ReaderProcess, type ReadOutcome } from './reader-process.js';

/** Documents that are read at the same time, each of another user. */
const READERS = 2;
/** How often to look for files of hosts that ended. */
const POLL_MS = 30_000;
/** How long the files of one user are read while others may wait. */
const TURN_MS = 5_000;
/** A document that takes longer is slow. Only one reader reads slow documents while other users wait. */
const SLOW_MS = 20_000;
/** Users to remember: of this round, and of those who have slow documents. */
const MAX_REMEMBERED = 1000;
/** How long a process waits for the next file of its user. */
const IDLE_MS = 10_000;
/** After a fault of the store. */
const RETRY_MS = 5_000;
/** Until a file is tried again whose storage did not answer. */
const AWAY_MS = 30_000;
/** Text of one file that is indexed. */
const MAX_CHARACTERS = 20_000_000;
/** A file that has to be in memory as a whole, and what it unpacks to. */
const MAX_BYTES = 64 * 1024 ** 2;

interface TextIndexerDeps {
  readonly texts: FileTextStore;
  readonly readBytes: (
    file: StoredFile,
    range: { readonly start: number; readonly end: number },
  ) => AsyncIterable<Uint8Array>;
  /** Bytes of the text of all files of one user. */
  readonly maxBytesPerUser: number;
  readonly disk: DiskSpace | undefined;
  readonly logger: Logger;
  readonly slowMs?: number;
  /** Called when the text of a file is stored. */
  readonly onRead: () => void;
}

type ClaimedFile = NonNullable<Awaited<ReturnType<FileTextStore['claimNext']>>>;

interface IdleProcess {
  readonly owner: string;
  readonly process: ReaderProcess;
  readonly timer: NodeJS.Timeout;
}

/** Reads the text of uploaded files, one file of a user at a time. */
export class TextIndexer {
  private readonly active = new Set<string>();
  private readonly running = new Set<Promise<void>>();
  /** Users who had a turn; the others are next. */
  private readonly round = new Set<string>();
  /** Users whose slow document gave way to others; first those are read that nothing is known about. */
  private readonly deferred = new Set<string>();
  /** The user whose slow document is being read. */
  private slow: string | undefined;
  private readonly processes = new Set<ReaderProcess>();
  private readonly timer = setInterval(() => this.wake(), POLL_MS);
  /** The last process that ended its work, for the next file of the same user. */
  private idle: IdleProcess | undefined;
  private isClosed = false;
  private isLooking = false;
  private looksAgain = false;

  constructor(private readonly deps: TextIndexerDeps) {
    this.timer.unref();
    this.wake();
  }

  /** Called when there is a file to read. */
  wake(): void {
    this.looksAgain = true;
    if (!this.isLooking) void this.look();
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearInterval(this.timer);
    for (const process of this.processes) process.kill();
    await Promise.all(this.running);
  }

  private async look(): Promise<void> {
    this.isLooking = true;
    while (this.looksAgain && !this.isClosed) {
      this.looksAgain = false;
      try {
        await this.startReaders();
      } catch (err) {
        const reason = String(err);
        this.deps.logger.warn({ reason }, 'looking for files to read failed; trying again');
        await sleep(RETRY_MS, undefined, { ref: false });
        this.looksAgain = true;
      }
    }
    this.isLooking = false;
  }

  private async startReaders(): Promise<void> {
    if (this.active.size >= READERS || (await this.deps.disk?.isLow())) return;
    const owners = await this.listNextOwners();
    for (const owner of owners.slice(0, READERS - this.active.size)) this.start(owner);
  }

  private async listNextOwners(): Promise<string[]> {
    const { texts } = this.deps;
    const except = [...this.active, ...(this.slow === undefined ? [] : this.deferred)];
    const owners = await texts.listWaitingOwners([...except, ...this.round]);
    if (owners.length > 0) return owners;
    this.round.clear();
    const again = await texts.listWaitingOwners(except);
    return again.length > 0 ? again : texts.listWaitingOwners([...this.active]);
  }

  private start(owner: string): void {
    this.active.add(owner);
    if (this.deferred.delete(owner)) this.slow ??= owner;
    const work = this.readOwnFiles(owner)
      .catch((err) => this.deps.logger.warn({ err, owner }, 'reading files failed'))
      .finally(() => {
        remember(this.round, owner);
        if (this.slow === owner) this.slow = undefined;
        this.active.delete(owner);
        this.running.delete(work);
        this.wake();
      });
    this.running.add(work);
  }

  /** Reads files of one user for a while. Another user's files are read by another process, which no file of this user has seen. */
  private async readOwnFiles(owner: string): Promise<void> {
    const deadline = performance.now() + TURN_MS;
    while (!this.isClosed && performance.now() < deadline) {
      const file = await this.deps.texts.claimNext(owner);
      if (!file) return;
      const process = this.takeProcess(owner);
      const timer = setInterval(
        () => void this.makeWay(owner, process),
        this.deps.slowMs ?? SLOW_MS,
      );
      try {
        await this.readFile(file, process);
      } finally {
        clearInterval(timer);
        this.keepProcess(owner, process);
      }
      if (this.deferred.has(owner)) return;
    }
  }

  /** Puts a slow document back if there is another one and further users wait. */
  private async makeWay(owner: string, process: ReaderProcess): Promise<void> {
    this.slow ??= owner;
    if (this.slow === owner) return;
    try {
      const except = [...this.active, ...this.deferred];
      const [waiting] = await this.deps.texts.listWaitingOwners(except);
      if (waiting === undefined || !this.active.has(owner)) return;
      remember(this.deferred, owner);
      process.kill();
    } catch (err) {
      this.deps.logger.warn({ reason: String(err) }, 'looking for waiting users failed');
    }
  }

  private async readFile(file: ClaimedFile, process: ReaderProcess): Promise<void> {
    const { texts, logger } = this.deps;
    const { owner, id: fileId, attempt } = file;
    const key = { owner, fileId, attempt };
    const extend = () =>
      texts.extend(key).catch((err) => {
        logger.warn({ ...key, reason: String(err) }, 'the claim of a file was not extended');
      });
    const timer = setInterval(extend, LEASE_MS / 4);
    try {
      await this.readClaimed(file, key, process);
    } finally {
      clearInterval(timer);
    }
  }

  private async readClaimed(
    file: StoredFile,
    key: ClaimKey,
    process: ReaderProcess,
  ): Promise<void> {
    const { texts, readBytes, maxBytesPerUser } = this.deps;
    const { owner, mediaType, size } = file;
    const kind = findDocumentKind(mediaType) ?? 'text';
    let n = 0;
    // What an earlier attempt has left.
    await texts.deleteAll(key);
    const maxTextBytes = maxBytesPerUser - (await texts.measure(owner));
    const limits = { maxCharacters: MAX_CHARACTERS, maxTextBytes, maxBytes: MAX_BYTES };
    const outcome = await process.read({
      job: { kind, size, ...limits },
      readBytes: async (start, end) => {
        const chunks: Uint8Array[] = [];
        for await (const chunk of readBytes(file, { start, end })) chunks.push(chunk);
        return Buffer.concat(chunks);
      },
      store: async (passages) => {
        // Tried again once there is space.
        await this.deps.disk?.assertRoom();
        const numbered = passages.map((passage, i) => ({ ...passage, n: n + i }));
        n += passages.length;
        return texts.add(key, numbered);
      },
    });
    await this.record(key, outcome, n);
  }

  private async record(key: ClaimKey, outcome: ReadOutcome, passages: number): Promise<void> {
    const { texts, logger, onRead } = this.deps;
    // A crash of the reader looks the same as its end.
    const isPutBack = outcome.type !== 'done' && this.deferred.has(key.owner);
    if (this.isClosed || isPutBack) return texts.release(key);
    // Its bytes could not be read, or its text not be stored: the next files come first.
    if (outcome.type === 'stopped') return texts.release(key, AWAY_MS);
    if (outcome.type === 'done') {
      await texts.finish(key, outcome);
      return onRead();
    }
    // Otherwise another host reads it by now.
    if (!(await texts.extend(key))) return;
    logger.info({ ...key, reason: outcome.error, passages }, 'the text of a file cannot be read');
    await texts.deleteAll(key);
    await texts.fail(key, outcome.error);
  }

  private takeProcess(owner: string): ReaderProcess {
    const idle = this.idle?.owner === owner ? this.idle.process : undefined;
    this.endIdle(idle);
    const process = idle?.isUsable ? idle : new ReaderProcess();
    this.processes.add(process);
    return process;
  }

  /** Starting a process takes longer than reading a small file. */
  private keepProcess(owner: string, process: ReaderProcess): void {
    this.endIdle();
    if (this.isClosed || !process.isUsable) {
      this.endProcess(process);
      return;
    }
    const timer = setTimeout(() => this.endIdle(), IDLE_MS).unref();
    this.idle = { owner, process, timer };
  }

  private endIdle(except?: ReaderProcess): void {
    const { process, timer } = this.idle ?? {};
    clearTimeout(timer);
    this.idle = undefined;
    if (process && process !== except) this.endProcess(process);
  }

  private endProcess(process: ReaderProcess): void {
    process.kill();
    this.processes.delete(process);
  }
}

/** Forgets the one that was added first if there are too many. */
function remember(owners: Set<string>, owner: string): void {
  const [first] = owners;
  if (owners.size >= MAX_REMEMBERED && first !== undefined) owners.delete(first);
  owners.add(owner);
}
