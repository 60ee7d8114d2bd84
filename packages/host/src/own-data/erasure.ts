import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OracleUcan } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { type Erased, OracleError } from '@sibyl/protocol';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import type { Logger } from 'pino';
import type { Caller } from '../auth/caller.js';
import type { DelegationService } from '../auth/delegations.js';
import type { HostBus } from '../bus/host-bus.js';
import type { FileService } from '../files/file-service.js';
import { ERASE_EXCEPTIONS } from '../store/own-data/own-data-rules.js';
import type { Store } from '../store/store.js';
import type { Turns } from '../turns/turns.js';
import type { Imports } from './imports.js';

/** How long turns of the user may take to end, here and on other hosts. Later, they find their rows deleted and end. */
const TURNS_END_MS = 10_000;
const POLL_MS = 50;

interface ErasureDeps {
  readonly oracleDid: string;
  readonly store: Pick<Store, 'ownerRows' | 'runs' | 'search'>;
  readonly turns: Turns;
  readonly delegations: DelegationService;
  readonly ucan: Pick<OracleUcan, 'acceptOnce'>;
  readonly bus: HostBus;
  readonly plugins: readonly LoadedPlugin[];
  readonly files: Pick<FileService, 'deleteAll'>;
  readonly imports: Pick<Imports, 'cancel'>;
  readonly logger: Logger;
}

/** Erases everything that is stored about a user. */
export class Erasure {
  constructor(private readonly deps: ErasureDeps) {}

  /** The invocation proves that the user's key confirms this erasure: a bearer token alone does not. */
  async erase(caller: Caller, invocation: string): Promise<Erased> {
    const { oracleDid, store, ucan, logger } = this.deps;
    const { did: owner } = caller;
    const wanted = { can: ERASE_ABILITY, with: toOracleResource(oracleDid), issuer: owner };
    const accepted = await ucan.acceptOnce(invocation, wanted);
    if ('error' in accepted)
      throw new OracleError('invalid_confirmation', {
        message: `Nothing was erased: ${accepted.error}`,
      });
    await this.endActivity(caller);
    await this.deps.files.deleteAll(owner);
    // First, while the rows that may name it exist; the user can try again if a service does not answer.
    for (const { plugin, services } of this.deps.plugins) await plugin.eraseUser?.(owner, services);
    const { index } = store.search;
    // A host that is killed once the texts are deleted must not leave their words.
    if (index.isSeparate) await index.removeOwner(owner);
    // A new pseudonym each time, so that rows of two erasures cannot be connected.
    const { rows, kept } = await store.ownerRows.erase(owner, `erased:${randomUUID()}`);
    // Until now, what was queued for the index may have been added to it.
    await index.removeOwner(owner);
    logger.info({ rows }, 'a user was erased');
    return { rows, kept: kept.flatMap(({ table, rows }) => describeKept(table, rows)) };
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

function describeKept(table: string, rows: number): Erased['kept'] {
  const exception = ERASE_EXCEPTIONS.find((known) => known.table === table);
  return exception ? [{ table, rows, keeps: exception.keeps, reason: exception.reason }] : [];
}
