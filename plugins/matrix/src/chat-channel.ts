import { setTimeout as delay } from 'node:timers/promises';
import { LruMap, type SafeFetch, SafeFetchError, textBytes } from '@sibyl/plugin-kit';
import { z } from 'zod';
import {
  authorization,
  encodeSegment,
  fetchWithinLimits,
  type Homeserver,
  MatrixError,
  requestMatrix,
} from './homeserver.js';

const Sent = z.object({ event_id: z.string() });
const Uploaded = z.object({ content_uri: z.string() });
const Members = z.object({ joined: z.record(z.string(), z.unknown()) });

/** How long an event waits for a homeserver that limits messages; then its message is postponed. */
const MAX_WAIT_MS = 120_000;
const TYPING_MS = 30_000;
/** How long the number of members is known, if no change is seen. */
const MEMBERS_MS = 600_000;
const UPLOAD_TIMEOUT_MS = 60_000;

/** Where an answer belongs. */
export interface ReplyPlace {
  readonly roomId: string;
  /** Its root. */
  readonly thread: string;
}

/** The content of an event. */
export type EventContent = Readonly<Record<string, unknown>>;

interface MatrixChannelDeps {
  readonly homeserver: Homeserver;
  readonly fetch: SafeFetch;
  /** Aborts when the host stops. */
  readonly signal: AbortSignal;
}

/** What the oracle does in rooms. */
export class MatrixChannel {
  /** By room. */
  private readonly direct = new LruMap<string, { readonly isDirect: boolean; readonly at: number }>(
    { maxBytes: 1024 ** 2, measure: (_, roomId) => textBytes(roomId) + 50 },
  );

  constructor(private readonly deps: MatrixChannelDeps) {}

  /** Sends an event to a thread, or to the room itself; with the same transaction id again, the homeserver returns the first event. */
  async send(
    { roomId, thread }: Pick<ReplyPlace, 'roomId'> & Partial<ReplyPlace>,
    content: EventContent,
    transactionId: string,
  ): Promise<string> {
    const relation = {
      rel_type: 'm.thread',
      event_id: thread,
      is_falling_back: true,
      'm.in_reply_to': { event_id: thread },
    };
    // Nothing that the model writes notifies people.
    const body = { 'm.mentions': {}, ...content, ...(thread && { 'm.relates_to': relation }) };
    const path = `/rooms/${encodeSegment(roomId)}/send/m.room.message/${transactionId}`;
    const request = { method: 'PUT', path, body, reply: Sent } as const;
    for (let leftMs = MAX_WAIT_MS; ; ) {
      try {
        return (await this.request(request)).event_id;
      } catch (error) {
        const waitMs = error instanceof MatrixError ? (error.retryAfterMs ?? leftMs) : leftMs;
        leftMs -= waitMs;
        if (leftMs <= 0) throw error;
        await delay(waitMs, undefined, { signal: this.deps.signal });
      }
    }
  }

  /** Shows that the oracle is writing, for half a minute. A failure is of no importance. */
  async showTyping(roomId: string, account: string, typing: boolean): Promise<void> {
    const path = `/rooms/${encodeSegment(roomId)}/typing/${encodeSegment(account)}`;
    const body = typing ? { typing, timeout: TYPING_MS } : { typing };
    await this.request({ method: 'PUT', path, body, reply: z.unknown() }).catch(() => undefined);
  }

  async join(roomId: string): Promise<void> {
    const path = `/join/${encodeSegment(roomId)}`;
    await this.request({ method: 'POST', path, body: {}, reply: z.unknown() });
  }

  /** Leaves a room, or rejects the invitation to it. */
  async leave(roomId: string): Promise<void> {
    const path = `/rooms/${encodeSegment(roomId)}/leave`;
    await this.request({ method: 'POST', path, body: {}, reply: z.unknown() });
  }

  async readAccount(): Promise<string> {
    const reply = z.object({ user_id: z.string() });
    return (await this.request({ path: '/account/whoami', reply })).user_id;
  }

  /** Whether the oracle is alone with one person. */
  async isDirect(roomId: string): Promise<boolean> {
    const known = this.direct.get(roomId);
    if (known && performance.now() - known.at < MEMBERS_MS) return known.isDirect;
    const isDirect = await this.countMembers(roomId).then((count) => count <= 2);
    this.direct.set(roomId, { isDirect, at: performance.now() });
    return isDirect;
  }

  /** Members have joined or left. */
  forgetMembers(roomId: string): void {
    this.direct.delete(roomId);
  }

  /** Uploads a file; returns its `mxc://` address. */
  async upload(file: { filename: string; mediaType: string; data: Uint8Array }): Promise<string> {
    const { homeserver, fetch, signal } = this.deps;
    const query = new URLSearchParams({ filename: file.filename });
    const url = `${homeserver.baseUrl}/_matrix/media/v3/upload?${query}`;
    const response = await fetchWithinLimits(fetch, url, {
      method: 'POST',
      headers: { ...authorization(homeserver), 'content-type': file.mediaType },
      body: Buffer.from(file.data),
      timeoutMs: UPLOAD_TIMEOUT_MS,
      maxBytes: 64 * 1024,
      signal,
    });
    const { data } = Uploaded.safeParse(await response.json().catch(() => undefined));
    if (response.ok && data) return data.content_uri;
    throw new MatrixError(response.status, `the homeserver answered ${response.status}`);
  }

  /** Infinity for a room whose list of members is too long, or that cannot be read. */
  private async countMembers(roomId: string): Promise<number> {
    const path = `/rooms/${encodeSegment(roomId)}/joined_members`;
    try {
      return Object.keys((await this.request({ path, reply: Members })).joined).length;
    } catch (error) {
      const cause = error instanceof Error ? error.cause : undefined;
      const isTooLarge = cause instanceof SafeFetchError && cause.code === 'too_large';
      const isRefused = error instanceof MatrixError && [403, 404].includes(error.status);
      if (isTooLarge || isRefused) return Number.POSITIVE_INFINITY;
      throw error;
    }
  }

  private request<Schema extends z.ZodType>(
    request: Parameters<typeof requestMatrix<Schema>>[1],
  ): Promise<z.output<Schema>> {
    const { homeserver, fetch, signal } = this.deps;
    return requestMatrix(homeserver, { signal, ...request }, fetch);
  }
}
