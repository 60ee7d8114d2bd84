import { setTimeout as delay } from 'node:timers/promises';
import { LruMap, type SafeFetch, SafeFetchError, textBytes } from '@sibyl/plugin-kit';
import { hasShortHost } from '@sibyl/protocol';

/** Failures in a row after which a homeserver counts as down. */
const MAX_FAILURES = 2;
const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 5 * 60_000;
/** While one request finds out whether a homeserver is back, the others still fail. */
const TRIAL_MS = 10_000;
const PROBE_LIMITS = { maxBytes: 1024 ** 2, timeoutMs: 10_000 };

/** A turn waits for the first sign of life in ticks, so that the delays of a busy host do not count. */
const TICK_MS = 100;
const MIN_TICKS = 8;
const MAX_TICKS = 50;

interface Health {
  /** Responses until now, errors included. */
  answers: number;
  failures: number;
  failedAt: number;
  /** No requests before this time. */
  pausedUntil: number;
  /** How long the last response took. */
  latencyMs: number;
  isProbing: boolean;
}

const OUTAGES: ReadonlySet<string> = new Set(['timeout', 'network']);
const OUTAGE_STATUSES: ReadonlySet<number> = new Set([502, 503, 504]);

/** The homeserver is down: it was not asked, or did not answer in time. */
export class HomeserverDownError extends Error {
  override readonly name = 'HomeserverDownError';
  constructor() {
    super('the homeserver does not answer');
  }
}

/** Knows which homeservers answer; those that do not are left alone for a while. */
export class HomeserverHealth {
  /** By host and port. Users name homeservers, so the least recently used ones are forgotten. */
  private readonly known = new LruMap<string, Health>({
    maxBytes: 1024 ** 2,
    measure: (_, key) => textBytes(key) + 100,
  });

  constructor(
    private readonly rawFetch: SafeFetch,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Does not ask homeservers that are down, and notices which are. */
  readonly fetch: SafeFetch = (url, init = {}) => this.send(url, init, 'prompt');

  /** Like `fetch`, for requests that homeservers answer when there is news: their duration says nothing. */
  readonly longPoll: SafeFetch = (url, init = {}) => this.send(url, init, 'waits');

  private async send(
    url: Parameters<SafeFetch>[0],
    init: NonNullable<Parameters<SafeFetch>[1]>,
    kind: 'prompt' | 'waits',
  ): Promise<Response> {
    const health = this.find(toHost(String(url)));
    const startedAt = this.now();
    if (startedAt < health.pausedUntil) throw new HomeserverDownError();
    if (health.failures >= MAX_FAILURES) health.pausedUntil = startedAt + TRIAL_MS;
    try {
      const response = await this.rawFetch(url, init);
      if (OUTAGE_STATUSES.has(response.status)) this.fail(health, startedAt);
      else this.succeed(health, kind === 'prompt' ? startedAt : undefined);
      return response;
    } catch (error) {
      if (error instanceof SafeFetchError && OUTAGES.has(error.code)) this.fail(health, startedAt);
      throw error;
    }
  }

  /** Whether requests to this homeserver fail at once. */
  isDown(homeserver: string): boolean {
    return this.now() < this.find(toHost(homeserver)).pausedUntil;
  }

  /**
   * Settles as the work does, unless the homeserver stays silent for about a second, or for three times as long as its last
   * response took: then it aborts the work. Work may take longer as long as the homeserver answers anything at all.
   */
  async whileAlive<T>(
    baseUrl: string,
    signal: AbortSignal,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const health = this.find(toHost(baseUrl));
    const silent = new AbortController();
    const settled = new AbortController();
    const watching = this.watch(health, settled.signal).then((isSilent) => {
      if (!isSilent) return;
      silent.abort(new HomeserverDownError());
      void this.probe(baseUrl, health);
    });
    try {
      return await work(AbortSignal.any([signal, silent.signal]));
    } finally {
      settled.abort();
      await watching;
    }
  }

  /** Whether the homeserver has said nothing while the work waited for it. */
  private async watch(health: Health, settled: AbortSignal): Promise<boolean> {
    const { answers, latencyMs } = health;
    const startedAt = this.now();
    const wanted = Math.ceil((3 * latencyMs) / TICK_MS);
    const ticks = Math.min(MAX_TICKS, Math.max(MIN_TICKS, wanted));
    for (let i = 0; i < ticks; i += 1) {
      await delay(TICK_MS, undefined, { signal: settled }).catch(() => undefined);
      if (settled.aborted || health.answers > answers) return false;
    }
    this.fail(health, startedAt);
    return true;
  }

  /** Learns how slow a silent homeserver is, so that the next turn waits long enough. */
  private async probe(baseUrl: string, health: Health): Promise<void> {
    if (health.isProbing) return;
    health.isProbing = true;
    const startedAt = this.now();
    try {
      const response = await this.rawFetch(`${baseUrl}/_matrix/client/versions`, PROBE_LIMITS);
      this.succeed(health, startedAt);
      await response.body?.cancel();
    } catch {
      this.fail(health, startedAt);
    } finally {
      health.isProbing = false;
    }
  }

  private find(host: string): Health {
    const known = this.known.get(host);
    if (known) return known;
    const health = {
      answers: 0,
      failures: 0,
      failedAt: Number.NEGATIVE_INFINITY,
      pausedUntil: Number.NEGATIVE_INFINITY,
      latencyMs: 0,
      isProbing: false,
    };
    this.known.set(host, health);
    return health;
  }

  private succeed(health: Health, startedAt: number | undefined): void {
    health.answers += 1;
    health.failures = 0;
    health.pausedUntil = Number.NEGATIVE_INFINITY;
    if (startedAt !== undefined) health.latencyMs = this.now() - startedAt;
  }

  private fail(health: Health, startedAt: number): void {
    // Requests that fail together are one failure.
    if (health.failedAt > startedAt) return;
    health.failedAt = this.now();
    health.failures += 1;
    if (health.failures < MAX_FAILURES) return;
    const pause = FIRST_PAUSE_MS * 2 ** Math.min(10, health.failures - MAX_FAILURES);
    health.pausedUntil = health.failedAt + Math.min(LONGEST_PAUSE_MS, pause);
  }
}

/** The host and port of a homeserver, given by name or URL. */
export function toHost(homeserver: string): string {
  const address = /^https?:\/\//i.test(homeserver) ? homeserver : `https://${homeserver}`;
  return (hasShortHost(address) ? URL.parse(address)?.host : undefined) ?? homeserver;
}
