import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OracleUcan } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import { type Erased, OracleError } from '@sibyl/protocol';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import type { Logger } from 'pino';
import type { Caller } from '../auth/caller.js';
import type { DelegationService } from '../auth/delegations.js';
import type { HostBus, HostLiveness } from '../bus/host-bus.js';
import type { FileService } from '../files/file-service.js';
import type { ErasureRequest } from '../store/shared-jobs.js';
import type { Store } from '../store/store.js';
import { isStoreError } from '../store/store-errors.js';
import type { Turns } from '../turns/turns.js';
import type { Imports } from './imports.js';

/** How long turns of the user may take to end, here and on other hosts. Later, they find their rows deleted and end. */
const TURNS_END_MS = 10_000;
const POLL_MS = 50;
const RETRY_SECONDS = 10;
/** How long a continued erasure waits after a failure of a plugin or storage; twice as long after each further one. */
const FIRST_PAUSE_MS = 10_000;
const MAX_PAUSE_MS = 10 * 60_000;

interface ErasureDeps {
  readonly oracleDid: string;
  readonly store: Pick<Store, 'erasures' | 'ownerRows' | 'removals' | 'runs' | 'search'>;
  readonly turns: Turns;
  readonly delegations: DelegationService;
  readonly ucan: Pick<OracleUcan, 'acceptOnce'>;
  readonly bus: HostBus;
  readonly liveness: Pick<HostLiveness, 'findDeadHosts'>;
  readonly plugins: readonly LoadedPlugin[];
  readonly files: Pick<FileService, 'deleteAll'>;
  readonly imports: Pick<Imports, 'cancel'>;
  readonly logger: Logger;
}

/** Erases everything that is stored about a user. */
export class Erasure {
  /** Those that this host is working on. */
  private readonly active = new Set<ErasureRequest>();
  /** Those that have failed here, by their id. */
  private readonly pauses = new Map<string, { readonly ms: number; readonly endsAt: number }>();

  constructor(private readonly deps: ErasureDeps) {}

  /** The invocation proves that the user's key confirms this erasure: a bearer token alone does not. */
  async erase(caller: Caller, invocation: string): Promise<Erased> {
    const { oracleDid, store, ucan, bus } = this.deps;
    const { did: owner } = caller;
    const wanted = { can: ERASE_ABILITY, with: toOracleResource(oracleDid), issuer: owner };
    const accepted = await ucan.acceptOnce(invocation, wanted);
    if ('error' in accepted)
      throw new OracleError('invalid_confirmation', {
        message: `Nothing was erased: ${accepted.error}`,
      });
    const add = () => store.erasures.add(owner, bus.hostId);
    // Once more, since it is stored if only the reply to its commit was lost.
    const request = await add().catch(add);
    try {
      return await this.run(request, caller);
    } catch (cause) {
      if (cause instanceof ElsewhereError) {
        await store.erasures.end(request);
        throw cause.cause;
      }
      if (!isStoreError(cause)) throw cause;
      throw new OracleError('store_unavailable', {
        message: CONTINUES,
        retryAfterSeconds: RETRY_SECONDS,
        cause,
      });
    }
  }

  /** Continues what this host could not end, and the erasures of hosts that have ended. */
  async continueAll(): Promise<void> {
    const { store, bus, liveness } = this.deps;
    const open = await store.erasures.list();
    if (open.length === 0) return this.pauses.clear();
    const hosts = new Set(open.map(({ hostId }) => hostId).filter((id) => id !== bus.hostId));
    const free = [bus.hostId, ...(await liveness.findDeadHosts([...hosts]))];
    for (const request of open) {
      const isActive = [...this.active].some(({ id }) => id === request.id);
      const isPaused = performance.now() < (this.pauses.get(request.id)?.endsAt ?? 0);
      if (isActive || isPaused || !free.includes(request.hostId)) continue;
      if (!(await store.erasures.takeOver(request, bus.hostId))) continue;
      const caller = { did: request.owner, expiration: 0, presentedDelegation: undefined };
      await this.run(request, caller).catch((err) => this.pause(request, err));
    }
  }

  /** Until the next attempt; without a database, it is made as soon as that is back. */
  private pause({ id }: ErasureRequest, err: unknown): void {
    const last = this.pauses.get(id)?.ms;
    const next = last === undefined ? FIRST_PAUSE_MS : Math.min(2 * last, MAX_PAUSE_MS);
    const ms = isStoreError(err) ? 0 : next;
    if (ms > 0) this.pauses.set(id, { ms, endsAt: performance.now() + ms });
    const fields = { err, retryInSeconds: ms / 1000 };
    this.deps.logger.warn(fields, 'the erasure of a user has not ended; trying again');
  }

  private async run(request: ErasureRequest, caller: Caller): Promise<Erased> {
    this.active.add(request);
    try {
      await this.endActivity(caller);
      if (await this.isOpen(request)) await this.eraseElsewhere(request.owner);
      return await this.eraseRows(request);
    } finally {
      this.active.delete(request);
    }
  }

  /** False if another host has ended it, while this one was frozen: the user may have stored something since then. */
  private isOpen(request: ErasureRequest): Promise<boolean> {
    return this.deps.store.erasures.takeOver(request, this.deps.bus.hostId);
  }

  /** First, while the rows that may name it exist; the user can try again if a service does not answer. */
  private async eraseElsewhere(owner: string): Promise<void> {
    try {
      await this.deps.files.deleteAll(owner);
      for (const { plugin, services } of this.deps.plugins)
        await plugin.eraseUser?.(owner, services);
    } catch (cause) {
      throw isStoreError(cause) ? cause : new ElsewhereError('A service failed', { cause });
    }
  }

  private async eraseRows(request: ErasureRequest): Promise<Erased> {
    const { store, logger } = this.deps;
    const { owner } = request;
    const { index } = store.search;
    // First: a host that is killed afterwards must not forget it. Keys that have stored nothing would only fill the log.
    if (await store.ownerRows.hasAny(owner)) await store.removals.addErasure(owner);
    // A host that is killed once the texts are deleted must not leave their words.
    if (index.isSeparate) await index.removeOwner(owner);
    // A new pseudonym each time, so that rows of two erasures cannot be connected.
    const pseudonym = `erased:${randomUUID()}`;
    const { rows, kept } = await store.ownerRows.erase(owner, pseudonym, request);
    // Until now, what was queued for the index may have been added to it.
    if (await this.isOpen(request)) await index.removeOwner(owner);
    await store.erasures.end(request);
    logger.info({ rows }, 'a user was erased');
    return { rows, kept };
  }

  /** Ends what runs on the user's behalf on any host, so that nothing is written after the erasure. */
  private async endActivity(caller: Caller): Promise<void> {
    const { store, turns, delegations, bus } = this.deps;
    const { did } = caller;
    // Drops what hosts have cached of the delegations; the hashes stay, so that the tokens cannot be used again.
    await delegations.revokeAll(caller);
    const open = await store.runs.openForOwner(did);
    const sessions = new Set(open.map(({ sessionId }) => sessionId));
    await Promise.all([...sessions].map((id) => turns.interruptAll({ owner: did, sessionId: id })));
    await this.waitForTurns(did);
    bus.send(bus.hostId, 'user-erased', { did });
    bus.send('others', 'user-erased', { did });
    await this.deps.imports.cancel(did);
  }

  private async waitForTurns(owner: string): Promise<void> {
    const { runs } = this.deps.store;
    const deadline = performance.now() + TURNS_END_MS;
    while (performance.now() < deadline) {
      const open = await runs.openForOwner(owner);
      // Nothing executes a paused turn.
      if (open.every(({ status }) => status === 'paused')) return;
      await sleep(POLL_MS);
    }
  }
}

/** What is stored outside of the database was not deleted. */
class ElsewhereError extends Error {}

const CONTINUES =
  'You are not erased completely yet, because the database did not answer in time. This continues by itself, and also erases what you store meanwhile. Confirm the erasure again to learn when it has ended.';
