import { type ChildProcess, fork } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FromReader, ReadJob, ReadPassage, ToReader, Unit } from './document-reader.js';

/** Time for one document, including the time to store its text. */
const TIMEOUT_MS = 5 * 60 * 1000;
/** Gives way to turns. The lowest priority would never read a document on a machine that is always busy. */
const NICE = 5;
/** Memory of the JavaScript heap, and of the whole process. */
const HEAP_MB = 320;
const MEMORY_BYTES = 512 * 1024 ** 2;
const MEMORY_CHECK_MS = 200;
const PAGE_BYTES = 4096;

export interface DocumentSource {
  readonly job: ReadJob;
  /** Bytes from `start` up to `end`, exclusive. */
  readonly readBytes: (start: number, end: number) => Promise<Uint8Array<ArrayBuffer>>;
  /** Stores some of the text; false to stop reading. */
  readonly store: (passages: readonly ReadPassage[]) => Promise<boolean>;
}

/** How reading ended. `stopped`: the file is gone, or the host is closing. */
export type ReadOutcome =
  | {
      readonly type: 'done';
      readonly unit: Unit;
      readonly count: number;
      readonly isComplete: boolean;
    }
  | { readonly type: 'failed'; readonly error: string }
  | { readonly type: 'stopped' };

/** A process that reads documents, with limits on time and memory. After a document that it could not read, it is dead. */
export class ReaderProcess {
  private readonly child: ChildProcess;
  private isDead = false;

  constructor(program = findProgram()) {
    this.child = fork(program, {
      // Neither secrets of the host nor its options; it may read its own code only, and not write files or start processes.
      env: {},
      execArgv: [
        `--max-old-space-size=${HEAP_MB}`,
        '--permission',
        ...listReadable(program).map((path) => `--allow-fs-read=${path}`),
        '--no-warnings',
      ],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    this.child.once('exit', () => {
      this.isDead = true;
    });
    this.child.on('error', () => this.kill());
    this.lowerPriority();
  }

  get isUsable(): boolean {
    return !this.isDead && this.child.connected;
  }

  kill(): void {
    this.isDead = true;
    this.child.kill('SIGKILL');
  }

  /** Reads one document; a process that exceeds a limit is killed. */
  async read(source: DocumentSource): Promise<ReadOutcome> {
    const timer = setTimeout(() => this.stop(TOO_SLOW), TIMEOUT_MS);
    const memory = setInterval(() => void this.checkMemory(), MEMORY_CHECK_MS);
    try {
      return await this.exchange(source);
    } finally {
      clearTimeout(timer);
      clearInterval(memory);
      this.stop = () => {};
      this.child.removeAllListeners('message');
    }
  }

  /** Ends the document that is being read. */
  private stop: (error: string) => void = () => {};

  private exchange(source: DocumentSource): Promise<ReadOutcome> {
    return new Promise((resolve) => {
      const end = (outcome: ReadOutcome) => {
        if (outcome.type !== 'done') this.kill();
        resolve(outcome);
      };
      this.stop = (error) => end({ type: 'failed', error });
      const crash = () => end({ type: 'failed', error: CRASHED });
      if (this.isDead) return crash();
      this.child.once('exit', crash);
      this.child.on('message', (message: FromReader) => {
        this.answer(message, source, end).catch(() => end({ type: 'stopped' }));
      });
      this.send({ type: 'read', job: source.job });
    });
  }

  private async answer(
    message: FromReader,
    { readBytes, store }: DocumentSource,
    end: (outcome: ReadOutcome) => void,
  ): Promise<void> {
    switch (message.type) {
      case 'bytes':
        return this.send({
          type: 'bytes',
          start: message.start,
          data: await readBytes(message.start, message.end),
        });
      case 'passages':
        return (await store(message.passages))
          ? this.send({ type: 'stored' })
          : end({ type: 'stopped' });
      default:
        return end(message);
    }
  }

  private send(message: ToReader): void {
    if (this.child.connected) this.child.send(message, () => {});
  }

  /** The limit of the heap leaves out buffers. */
  private async checkMemory(): Promise<void> {
    const statm = await readFile(`/proc/${this.child.pid}/statm`, 'utf8').catch(() => '');
    if (Number(statm.split(' ')[1] ?? 0) * PAGE_BYTES > MEMORY_BYTES) this.stop(TOO_LARGE);
  }

  private lowerPriority(): void {
    try {
      if (this.child.pid) setPriority(this.child.pid, NICE);
    } catch {
      // It may have ended already.
    }
  }
}

/** The path is the same beside the sources, the build and the bundle. */
function findProgram(): string {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  return fileURLToPath(new URL(`./document-reader.${extension}`, import.meta.url));
}

/** The folder of the program, and where Node looks for the packages that it imports. */
function listReadable(program: string): string[] {
  const paths = [dirname(program)];
  for (let folder = program; folder !== dirname(folder); ) {
    folder = dirname(folder);
    paths.push(join(folder, 'package.json'), join(folder, 'node_modules'));
  }
  return [...new Set(paths.filter(existsSync).flatMap((path) => [path, realpathSync(path)]))];
}

const TOO_SLOW = 'it takes too long to read';
const TOO_LARGE = 'it needs too much memory to read';
const CRASHED = 'it needs too much memory, or its reader ended unexpectedly';
