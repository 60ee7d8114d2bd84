import type { ApprovalFacts, Decision, DecisionClaims } from './approvals.js';
import type { JsonObject } from './json.js';
import type { CreateSchedule, ScheduleTrigger } from './schedules.js';

// What users sign. Without schemas, so that pages need not load a validator.

/** The ability of the invocation with which a user decides an approval. */
export const APPROVE_ABILITY = 'oracle/approve';
/** The ability of the token with which a user sets rules. */
export const RULES_ABILITY = 'oracle/rules';
/** The ability of the invocation with which a user confirms `DELETE /me`. */
export const ERASE_ABILITY = 'oracle/erase';
/** The ability that a user delegates so that the oracle may run turns for them. */
export const RUN_ABILITY = 'oracle/run';
/** The resource of all: one oracle. */
export const toOracleResource = (oracleDid: string): string => `ixo:oracle:${oracleDid}`;

/** What a user decides about a call. */
export interface ApprovalDecision {
  readonly id: string;
  readonly decision: Decision;
  readonly originalArgs: JsonObject;
  /** Unless edited, the original ones. */
  readonly args?: JsonObject | undefined;
  readonly reason?: string | null | undefined;
}

/** Builds the caveats that a user signs. */
export async function buildDecisionClaims(decided: ApprovalDecision): Promise<DecisionClaims> {
  const { id, decision, originalArgs, args = originalArgs, reason = null } = decided;
  return {
    approval: id,
    decision,
    argsHash: await hashJson(args),
    originalArgsHash: await hashJson(originalArgs),
    reasonHash: await hashJson(reason),
  };
}

/** What a schedule does, as its user signs it. */
export interface ScheduleTerms extends Pick<CreateSchedule, 'message'> {
  readonly trigger: ScheduleTrigger;
  readonly resultUrl?: string | null | undefined;
  readonly resultTo?: string | null | undefined;
}

/** The caveats of the delegation of a schedule. */
export interface ScheduleClaims {
  readonly messageHash: string;
  readonly triggerHash: string;
  readonly targetHash: string;
}

/** What of a schedule is signed, by the names of the caveats without `Hash`. */
export function toSignedTerms({
  message,
  trigger,
  resultUrl = null,
  resultTo = null,
}: ScheduleTerms) {
  return { message, trigger, target: { resultUrl, resultTo } } satisfies JsonObject;
}

/** Builds the caveats that a user signs for a schedule. */
export const buildScheduleClaims = async (terms: ScheduleTerms): Promise<ScheduleClaims> =>
  hashTerms(toSignedTerms(terms));

/** The caveats of a delegation for these terms: `messageHash` for `message`. */
export async function hashTerms<Name extends string>(
  terms: Readonly<Record<Name, unknown>>,
): Promise<Record<`${Name}Hash`, string>> {
  const hashed = Object.entries(terms).map(
    async ([name, term]) => [`${name}Hash`, await hashJson(term)] as const,
  );
  return Object.fromEntries(await Promise.all(hashed)) as Record<`${Name}Hash`, string>;
}

/** The id of an approval: it commits to the facts, so that a signature under it does too. */
export const toApprovalId = (facts: ApprovalFacts): Promise<string> => hashJson(facts);

/**
 * The SHA-256 of the canonical JSON of a value, in hex. Throws a TypeError for half a surrogate pair, which canonical
 * JSON cannot represent.
 */
export async function hashJson(value: unknown): Promise<string> {
  const text = canonicalJson(value);
  if (LONE_SURROGATE.test(text)) throw new TypeError('A text contains half a surrogate pair');
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** JSON text escapes these alone; a backslash before the escape must not itself be escaped. */
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f]/;

/**
 * The canonical JSON text of a value (RFC 8785): equal values have equal texts. Like JSON.stringify it calls `toJSON` and
 * leaves out what JSON cannot represent.
 */
export function canonicalJson(value: unknown): string {
  const plain = hasToJson(value) ? value.toJSON() : value;
  if (!isObject(plain)) return JSON.stringify(plain) ?? 'null';
  if (Array.isArray(plain)) return `[${plain.map(canonicalJson).join()}]`;
  // Not an object with sorted fields: objects always have fields such as `10` first.
  const fields = Object.entries(plain)
    .filter(([, field]) => !['undefined', 'function', 'symbol'].includes(typeof field))
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, field]) => `${JSON.stringify(name)}:${canonicalJson(field)}`);
  return `{${fields.join()}}`;
}

const hasToJson = (value: unknown): value is { toJSON(): unknown } =>
  isObject(value) && 'toJSON' in value && typeof value.toJSON === 'function';

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
