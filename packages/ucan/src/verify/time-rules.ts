import { refuse, type UcanFault } from '../fault.js';
import type { Ucan } from '../gate/token.js';

/** How far the clock of an issuer may run ahead of ours. */
export const SKEW_SECONDS = 30;

/** The end of the year 9999: later times are mistakes, such as milliseconds, and overflow dates. */
export const LATEST_TIME = 253_402_300_799;

/** Expiry has no grace; only `nbf` allows for skew. */
export function checkTime(ucan: Ucan, now: number): UcanFault | undefined {
  if ((ucan.expiration ?? 0) > LATEST_TIME) {
    return refuse('expiry_too_far', `${ucan.expiration} is after the year 9999`).error;
  }
  if (ucan.expiration !== null && ucan.expiration <= now) {
    return refuse('expired', `${now - ucan.expiration} s ago`).error;
  }
  if ((ucan.notBefore ?? 0) > now + SKEW_SECONDS) {
    return refuse('not_yet_valid', `in ${(ucan.notBefore ?? 0) - now} s`).error;
  }
  return undefined;
}

/** A token presented as proof of who is calling must run out soon. */
export function checkTtl(ucan: Ucan, now: number, maxTtlSeconds: number): UcanFault | undefined {
  if (ucan.expiration === null) return refuse('expiry_missing', 'no exp').error;
  if (ucan.expiration > now + maxTtlSeconds + SKEW_SECONDS) {
    return refuse('expiry_too_far', `in ${ucan.expiration - now} s`).error;
  }
  return undefined;
}
