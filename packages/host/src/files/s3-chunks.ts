import { createHash } from 'node:crypto';
import { OracleError } from '@sibyl/protocol';
import { AwsClient } from 'aws4fetch';
import {
  type ChunkPlace,
  type ChunkStorage,
  countChunks,
  type FileBytes,
} from '../store/file-store.js';

/** Each is one request; large enough that their latency does not matter. */
const OBJECT_BYTES = 1024 * 1024;
const ATTEMPTS = 4;
const TIMEOUT_MS = 60_000;

/** Stores each chunk as an object of an S3-compatible service, so that uploads of unknown length need little memory. */
export class S3Chunks implements ChunkStorage {
  readonly name = 's3';
  readonly chunkBytes = OBJECT_BYTES;
  private readonly client: AwsClient;
  private readonly base: string;

  /** `https://KEY:SECRET@host/bucket/prefix?region=eu-central-1`. */
  constructor(address: string) {
    const { username, password, searchParams, origin, pathname } = new URL(address);
    this.client = new AwsClient({
      accessKeyId: decodeURIComponent(username),
      secretAccessKey: decodeURIComponent(password),
      region: searchParams.get('region') ?? 'us-east-1',
      service: 's3',
      retries: ATTEMPTS - 1,
    });
    this.base = origin + pathname.replace(/\/*$/, '/');
  }

  async put(place: ChunkPlace, data: Uint8Array): Promise<void> {
    const response = await this.request('PUT', place, data as Uint8Array<ArrayBuffer>);
    await response.body?.cancel();
    if (!response.ok) throw createStorageError('storing', response);
  }

  async get(place: ChunkPlace): Promise<Uint8Array | undefined> {
    const response = await this.request('GET', place);
    if (response.ok) return readObject(response);
    await response.body?.cancel();
    if (response.status === 404) return undefined;
    throw createStorageError('reading', response);
  }

  async deleteAll(file: FileBytes): Promise<void> {
    for (let n = 0; n < countChunks(file); n += 1) {
      const response = await this.request('DELETE', { owner: file.owner, fileId: file.id, n });
      await response.body?.cancel();
      if (!response.ok && response.status !== 404) throw createStorageError('deleting', response);
    }
  }

  private async request(
    method: string,
    { owner, fileId, n }: ChunkPlace,
    body?: Uint8Array<ArrayBuffer>,
  ): Promise<Response> {
    // DIDs may contain characters that keys of objects should not.
    const folder = createHash('sha256').update(owner).digest('hex').slice(0, 32);
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const request = { method, signal, ...(body && { body }) };
    return this.client
      .fetch(`${this.base}${folder}/${fileId}/${n}`, request)
      .catch(failUnreachable);
  }
}

/** No object is larger than those that this host stores. */
async function readObject(response: Response): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  try {
    // Leaving the loop early closes the connection.
    for await (const piece of response.body ?? []) {
      bytes += piece.length;
      if (bytes > OBJECT_BYTES) throw new Error('the storage answered with too large an object');
      pieces.push(piece);
    }
  } catch (cause) {
    throw createUnavailable(cause);
  }
  return Buffer.concat(pieces);
}

const UNREACHABLE = 'The storage of files is not available; try again';

const createUnavailable = (cause: unknown) =>
  new OracleError('store_unavailable', { cause, message: UNREACHABLE, retryAfterSeconds: 5 });

/** The connection could not be opened, broke off or took too long. */
function failUnreachable(cause: unknown): never {
  throw createUnavailable(cause);
}

const createStorageError = (doing: string, { status }: Response) =>
  createUnavailable(new Error(`the storage answered ${status} while ${doing} a file`));
