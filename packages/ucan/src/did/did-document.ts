import type { Result } from '@sibyl/protocol';
import { scanJson } from '@sibyl/protocol/json-scan';
import { decodeBase58 } from '../codec/bytes.js';
import { ED25519_KEY_BYTES, ed25519FromMulticodec } from './did-key.js';
import { type DidError, type DidKeys, refuseDid } from './did-resolver.js';

const MAX_KEYS = 8;
/** Bounds the decoding, since most methods of a hostile document may hold no key at all. */
const MAX_METHODS = 64;

/** A key under one of these can sign for the DID; keyAgreement keys only receive. */
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
type RelationshipRule = 'required' | 'assumed';

type Method = Record<string, unknown>;

/** The Ed25519 keys that a DID document lets speak for the DID that was asked for. */
export function readDocumentKeys(
  document: unknown,
  did: string,
  rule: RelationshipRule,
): Result<DidKeys, DidError> {
  if (!isRecord(document)) return refuseDid('did_invalid', 'the answer holds no DID document');
  if (document.id !== did) return refuseDid('did_invalid', 'the document is of another DID');
  if (isDeactivated(document)) return refuseDid('did_deactivated', 'the DID was deactivated');
  const methods = signingMethods(document, did, rule);
  if (!methods || methods.length > MAX_METHODS) {
    return refuseDid('did_invalid', 'the DID document is malformed or has too many methods');
  }
  const keys = distinct(methods.map(readEd25519Key).filter((key) => key !== undefined));
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
  const methods = readField(document, 'verificationMethod') ?? [];
  if (!Array.isArray(methods) || !methods.every(isRecord)) return undefined;
  const lists = RELATIONSHIPS.map((name) => readField(document, name)).filter(isPresent);
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

/** Raw bytes do not say what they are (X25519 keys are as long), so the method's type must. */
const ED25519_TYPE = 'Ed25519VerificationKey';
const SELF_DESCRIBING_TYPE = 'Multikey';

/** The raw Ed25519 key of a verification method; undefined for other kinds and for malformed material. */
function readEd25519Key(method: Record<string, unknown>): Uint8Array | undefined {
  const { type } = method;
  if (typeof type !== 'string') return undefined;
  const saysEd25519 = type.startsWith(ED25519_TYPE);
  if (!saysEd25519 && type !== SELF_DESCRIBING_TYPE) return undefined;
  const multibase = readText(method, 'publicKeyMultibase');
  // In base58 multibase the multicodec prefix is part of the key's format.
  if (multibase?.startsWith('z')) return fromMulticodec(decodeBase58(multibase.slice(1)));
  const bytes = multibase ? decodeHexMultibase(multibase) : decodePlain(method);
  return saysEd25519 && bytes?.length === ED25519_KEY_BYTES ? bytes : fromMulticodec(bytes);
}

function fromMulticodec(bytes: Uint8Array | undefined): Uint8Array | undefined {
  return bytes && ed25519FromMulticodec(bytes);
}

/** The chain writes raw keys so; others put a multicodec prefix before them. */
function decodeHexMultibase(text: string): Uint8Array | undefined {
  return /^[fF]/.test(text) ? decodeHex(text.slice(1)) : undefined;
}

function decodePlain(method: Record<string, unknown>): Uint8Array | undefined {
  const base58 = readText(method, 'publicKeyBase58');
  if (base58) return decodeBase58(base58);
  const hex = readText(method, 'publicKeyHex');
  return hex ? decodeHex(hex) : undefined;
}

function decodeHex(text: string): Uint8Array | undefined {
  if (!/^(?:[0-9a-fA-F]{2}){1,64}$/.test(text)) return undefined;
  return Uint8Array.from(Buffer.from(text, 'hex'));
}

function readText(method: Record<string, unknown>, name: string): string | undefined {
  const value = readField(method, name);
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Whether a JSON value is an object. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Reads a field by its camelCase or its snake_case name; servers differ in how they write protobuf as JSON. */
export function readField(record: Record<string, unknown>, name: string): unknown {
  return record[name] ?? record[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)];
}

/** fetch, as the host provides it: a DID may name any server, so it should refuse private networks. */
export type DidFetch = (url: string, init?: RequestInit) => Promise<Response>;

export interface FetchLimits {
  readonly maxBytes: number;
  readonly timeoutMs: number;
}

/** In a document: more than its keys and services have. */
const MAX_VALUES = 10_000;

export const FETCH_LIMITS: FetchLimits = { maxBytes: 256 * 1024, timeoutMs: 3000 };

interface JsonRequest {
  readonly url: string;
  readonly fetch: DidFetch;
  readonly limits: FetchLimits;
  /** Sent as a JSON POST; without it the request is a GET. */
  readonly body?: unknown;
}

export interface JsonAnswer {
  readonly status: number;
  /** Undefined when an error status came with something other than JSON. */
  readonly json: unknown;
}

/** Asks once, within the limits and without following redirects; any network trouble is `did_unavailable`. */
export async function fetchJson(request: JsonRequest): Promise<Result<JsonAnswer, DidError>> {
  const host = readHost(request.url);
  try {
    const response = await request.fetch(request.url, buildInit(request));
    const bytes = await readBytes(response, request.limits.maxBytes);
    if (!bytes) return refuseDid('did_invalid', `${host} answered with too large a document`);
    const json = parseJson(bytes);
    if (response.ok && json === undefined) {
      return refuseDid('did_invalid', `${host} answered with something other than JSON`);
    }
    return { ok: { status: response.status, json } };
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/\.$/, '') : 'unknown failure';
    return refuseDid('did_unavailable', `${host} could not be asked: ${reason}`);
  }
}

/** The error of a status that is neither an answer nor a plain "not found". */
export function unexpectedStatus(url: string, status: number): { readonly error: DidError } {
  return refuseDid('did_unavailable', `${readHost(url)} answered ${status}`);
}

/** Enough for the log; the rest of a configured URL may hold a key. */
function readHost(url: string): string {
  return URL.parse(url)?.host ?? 'an invalid URL';
}

function buildInit({ body, limits }: JsonRequest): RequestInit {
  const accept = 'application/json, application/did+json';
  const common = { redirect: 'error', signal: AbortSignal.timeout(limits.timeoutMs) } as const;
  if (body === undefined) return { ...common, headers: { accept } };
  return {
    ...common,
    method: 'POST',
    headers: { accept, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
}

/** Undefined past the limit; the rest is left unread. */
async function readBytes(response: Response, maxBytes: number): Promise<Uint8Array | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  // Leaving the loop early cancels the stream.
  for await (const chunk of response.body ?? []) {
    length += chunk.length;
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function parseJson(bytes: Uint8Array): unknown {
  if (scanJson(bytes, { values: MAX_VALUES }).excess) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
