import type { Result } from '@sibyl/protocol';
import { refuseDid } from '../did-fault.js';
import type { DidFault, DidKeys } from '../did-resolver.js';
import { fieldOf, isRecord } from './fields.js';
import { ed25519KeyOf } from './public-key.js';

const MAX_KEYS = 8;
/** Bounds the decoding, since most methods of a hostile document may hold no key at all. */
const MAX_METHODS = 64;

/** Whoever holds a key under one of these speaks for the DID; keyAgreement keys only receive. */
const RELATIONSHIPS = [
  'authentication',
  'assertionMethod',
  'capabilityInvocation',
  'capabilityDelegation',
] as const;

/**
 * What a document without any relationship field means: `required`, it grants nothing; `assumed`, its source left
 * them out and every Ed25519 verification method counts.
 */
export type RelationshipRule = 'required' | 'assumed';

type Method = Record<string, unknown>;

/** The Ed25519 keys that a DID document lets speak for the DID that was asked for. */
export function keysOfDocument(
  document: unknown,
  did: string,
  rule: RelationshipRule,
): Result<DidKeys, DidFault> {
  if (!isRecord(document)) return refuseDid('did_invalid', 'the answer holds no DID document');
  if (document.id !== did) return refuseDid('did_invalid', 'the document is of another DID');
  if (isDeactivated(document)) return refuseDid('did_deactivated', 'the DID was deactivated');
  const methods = signingMethods(document, did, rule);
  if (!methods || methods.length > MAX_METHODS) {
    return refuseDid('did_invalid', 'the DID document is malformed or has too many methods');
  }
  const keys = distinct(methods.map(ed25519KeyOf).filter((key) => key !== undefined));
  if (keys.length === 0) {
    return refuseDid('did_invalid', 'the DID document lets no Ed25519 key sign');
  }
  if (keys.length > MAX_KEYS) {
    return refuseDid('did_invalid', `the DID document has more than ${MAX_KEYS} signing keys`);
  }
  return { ok: keys };
}

/** Any value but a plain no counts as deactivated. */
function isDeactivated(document: Record<string, unknown>): boolean {
  const metadata = document.metadata;
  const marks = [document.deactivated, isRecord(metadata) ? metadata.deactivated : undefined];
  return marks.some((mark) => isPresent(mark) && mark !== false);
}

function signingMethods(
  document: Record<string, unknown>,
  did: string,
  rule: RelationshipRule,
): Method[] | undefined {
  const methods = fieldOf(document, 'verificationMethod') ?? [];
  if (!Array.isArray(methods) || !methods.every(isRecord)) return undefined;
  const lists = RELATIONSHIPS.map((name) => fieldOf(document, name)).filter(isPresent);
  if (rule === 'assumed' && lists.length === 0) return methods;
  if (!lists.every((list) => Array.isArray(list))) return undefined;
  const entries: unknown[] = lists.flat();
  if (!entries.every((entry) => typeof entry === 'string' || isRecord(entry))) return undefined;
  const names = entries.filter((entry) => typeof entry === 'string');
  const named = new Set(names.map((name) => absolute(name, did)));
  const referenced = methods.filter(
    ({ id }) => typeof id === 'string' && named.has(absolute(id, did)),
  );
  return [...referenced, ...entries.filter(isRecord)];
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** Spells `#key` as `did:…#key`, so that both spellings meet. */
function absolute(reference: string, did: string): string {
  return reference.startsWith('#') ? did + reference : reference;
}

function distinct(keys: readonly Uint8Array[]): Uint8Array[] {
  return [...new Map(keys.map((key) => [Buffer.from(key).toString('hex'), key])).values()];
}
