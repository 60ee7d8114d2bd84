import {
  type DelegatedTurns,
  OracleError,
  type RunDelegation,
  type RunPermission,
} from '@sibyl/plugin-kit';
import { buildScheduleClaims, canonicalJson, type ScheduleTerms } from '@sibyl/protocol';
import { type ScheduleKey, type ScheduleRow, toTerms } from './schedule-store.js';

/** A delegation, and what its user has signed with it. */
export interface Signature extends RunDelegation {
  readonly terms: ScheduleTerms;
}

interface SchedulePermitsDeps {
  readonly turns: Pick<DelegatedTurns, 'authorize' | 'check' | 'release'>;
  readonly oracleDid: string;
}

/**
 * The permission of a schedule to run: a delegation of its user for exactly this schedule and exactly what it does. The
 * hashes are always those of the stored schedule, so that one that was changed without a signature does not run.
 */
export class SchedulePermits {
  constructor(private readonly deps: SchedulePermitsDeps) {}

  toResource(id: string): string {
    return `ixo:oracle:${this.deps.oracleDid}:schedule/${id}`;
  }

  /** The id of the schedule that a resource is of. */
  readId(resource: string): string {
    return resource.slice(this.toResource('').length);
  }

  /** What the turns of a schedule run under. */
  async toPermission(row: ScheduleRow): Promise<RunPermission> {
    const { owner, delegation_cid: cid } = row;
    return { owner, cid: cid ?? '', ...(await this.toWanted(row, toTerms(row))) };
  }

  /** Why a schedule may not run as its user now; undefined if it may. */
  async check(row: ScheduleRow): Promise<string | undefined> {
    if (row.delegation_cid === null) return row.reason ?? 'The schedule has no delegation';
    return this.deps.turns.check(await this.toPermission(row));
  }

  /** Verifies and stores the delegation of a schedule that does this. */
  async sign(
    { owner, id }: ScheduleKey,
    { token, terms }: { readonly token: string; readonly terms: ScheduleTerms },
  ): Promise<Signature> {
    const wanted = await this.toWanted({ id }, terms);
    return { ...(await this.deps.turns.authorize({ owner, token, ...wanted })), terms };
  }

  /** A delegation that is stored already; undefined if it is not, or no longer, for a schedule that does this. */
  async adopt(
    { owner, id }: ScheduleKey,
    { delegation, terms }: { readonly delegation: RunDelegation; readonly terms: ScheduleTerms },
  ): Promise<Signature | undefined> {
    const permission = { owner, cid: delegation.cid, ...(await this.toWanted({ id }, terms)) };
    const reason = await this.deps.turns.check(permission);
    return reason === undefined ? { ...delegation, terms } : undefined;
  }

  /** Deletes the delegation of a schedule; this does not revoke it. */
  async release({ owner, delegation_cid: cid }: Pick<ScheduleRow, 'owner' | 'delegation_cid'>) {
    if (cid !== null) await this.deps.turns.release({ owner, cid });
  }

  private async toWanted({ id }: Pick<ScheduleKey, 'id'>, terms: ScheduleTerms) {
    return { resource: this.toResource(id), caveats: { ...(await buildClaims(terms)) } };
  }
}

/** Half a surrogate pair cannot be signed. */
async function buildClaims(terms: ScheduleTerms) {
  try {
    return await buildScheduleClaims(terms);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const message = ['message: must be valid Unicode'];
    throw new OracleError('validation_failed', { message, cause: error });
  }
}

/** Whether two schedules do the same, so that the same signature is for both. */
export const isSame = (one: ScheduleTerms, other: ScheduleTerms): boolean =>
  canonicalJson(one) === canonicalJson(other);
