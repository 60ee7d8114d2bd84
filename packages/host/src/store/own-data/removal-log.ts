import { createHmac, hkdfSync } from 'node:crypto';
import { appendFile, mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';

const FILE = 'removals.jsonl';
/** Below this size, nothing is forgotten. */
const SMALL_BYTES = 8 * 1024 * 1024;
/** About 4 MB. Anyone can revoke as much as they like, but what they erase existed. */
const MAX_REVOCATIONS = 40_000;
const OWNER_ONLY = 0o600;

const Removal = z.union([
  z.object({
    /** Of the DID: the file itself says nothing about users. */
    erased: z.string(),
    /** Milliseconds. */
    at: z.number(),
  }),
  z.object({
    /** The CID. */
    revoked: z.string(),
    /** Unix seconds; null for a delegation that never expires. */
    expiresAt: z.number().nullable(),
  }),
]);
type Removal = z.infer<typeof Removal>;

/** A file beside the database that remembers what must not come back with an older backup: restoring leaves it as it is. */
export class RemovalLog {
  private readonly path: string;
  private readonly key: Uint8Array;
  /** Settles when the last line is in the file. */
  private written: Promise<unknown> = Promise.resolve();
  private shortenAt = SMALL_BYTES;

  /** `secretKey` is that of the oracle. */
  constructor(dataDir: string, secretKey: Uint8Array) {
    this.path = join(dataDir, FILE);
    this.key = new Uint8Array(hkdfSync('sha256', secretKey, '', 'sibyl removals', 32));
  }

  hash(owner: string): string {
    return createHmac('sha256', this.key).update(owner).digest('base64url');
  }

  /** Before anything of the user is deleted: what is in the log twice is erased once. */
  addErasure(owner: string): Promise<void> {
    return this.append({ erased: this.hash(owner), at: Date.now() });
  }

  addRevocation(cid: string, expiresAt: number | null): Promise<void> {
    return this.append({ revoked: cid, expiresAt });
  }

  /** The oldest first; undefined if nothing was ever removed, or the file is lost. */
  async read(): Promise<readonly Removal[] | undefined> {
    const text = await readFile(this.path, 'utf8').catch((error) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    return text?.split('\n').flatMap(parse);
  }

  /** One after the other: what is added while the file is shortened must be in the new one. */
  private append(removal: Removal): Promise<void> {
    const written = this.written.then(() => this.write(removal));
    this.written = written.catch(() => undefined);
    return written;
  }

  private async write(removal: Removal): Promise<void> {
    const line = `${JSON.stringify(removal)}\n`;
    // With PostgreSQL and the key of the oracle in the environment, this may be its first file.
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    await appendFile(this.path, line, { mode: OWNER_ONLY, flush: true });
    if ((await stat(this.path)).size > this.shortenAt) await this.shorten();
  }

  /** Forgets revocations of what has expired and the oldest others; keeps the last erasure of each user. */
  private async shorten(): Promise<void> {
    const now = Date.now() / 1000;
    const known = (await this.read()) ?? [];
    const erasures = new Map(known.flatMap((one) => ('erased' in one ? [[one.erased, one]] : [])));
    const revocations = known.filter((one) => 'revoked' in one && (one.expiresAt ?? now) >= now);
    const kept = [...erasures.values(), ...revocations.slice(-MAX_REVOCATIONS)];
    const text = kept.map((one) => `${JSON.stringify(one)}\n`).join('');
    await writeFile(`${this.path}.new`, text, { mode: OWNER_ONLY, flush: true });
    await rename(`${this.path}.new`, this.path);
    this.shortenAt = Math.max(SMALL_BYTES, 2 * text.length);
  }
}

/** A line that a power failure left incomplete is left out. */
function parse(line: string): Removal[] {
  try {
    return [Removal.parse(JSON.parse(line))];
  } catch {
    return [];
  }
}
