import { createHash, randomBytes } from 'node:crypto';
import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import { concat, equalBytes } from '../codec/bytes.js';
import { encodeCbor } from '../codec/cbor.js';
import { encodeDagJson, type IpldMap, type Link, linkFromDigest } from '../codec/ipld.js';
import {
  AUTH_CAPABILITY,
  type Block,
  type Capability,
  type Clock,
  encodeArchiveRoot,
  encodeCar,
  encodeUcan,
  type MintedToken,
  SIGNATURE_HEAD,
  signingBytes,
  systemClock,
  type Ucan,
  type UcanPayload,
} from '../codec/ucan.js';
import { refuse, type UcanError } from '../errors.js';
import type { Signer } from '../keys/signer.js';
import { readArchiveRoot, readCar } from '../read/read-car.js';
import { readToken } from '../read/read-token.js';
import { readUcan } from '../read/read-ucan.js';
import { checkProofs, isCovered } from '../verify/rules.js';
import type { VerifiedDelegation } from '../verify/verifier.js';

export interface AuthInvocationRequest {
  readonly signer: Signer;
  /** The oracle's DID. */
  readonly audience: string;
  readonly ttlSeconds?: number;
  readonly clock?: Clock;
}

/** Mints the bearer token that authenticates the caller. */
export function mintAuthInvocation(request: AuthInvocationRequest): Result<MintedToken, UcanError> {
  const { signer, audience, ttlSeconds = 300, clock = systemClock } = request;
  const payload = {
    issuer: signer.did,
    audience,
    capabilities: [AUTH_CAPABILITY],
    expiration: clock() + ttlSeconds,
    facts: [nonceFact()],
    proofs: [],
  };
  return issue(payload, signer, []);
}

export interface DelegationRequest {
  readonly signer: Signer;
  readonly audience: string;
  readonly capabilities: readonly Capability[];
  /** Unix seconds; null for a delegation that never expires. */
  readonly expiration: number | null;
  readonly notBefore?: number;
  readonly nonce?: string;
  readonly facts?: readonly IpldMap[];
  /** Tokens whose rights are passed on. */
  readonly proofs?: readonly string[];
}

/** Mints a delegation; refuses one that its proofs do not cover. */
export function mintDelegation(request: DelegationRequest): Result<MintedToken, UcanError> {
  const { signer, facts = [], proofs: tokens = [], ...fields } = request;
  const proofs = readProofs(tokens);
  if (proofs.error) return proofs;
  const payload = { ...fields, issuer: signer.did, facts, proofs: proofs.ok.links };
  const error = checkProofs(payload, proofs.ok.roots);
  return error ? { error } : issue(payload, signer, proofs.ok.blocks);
}

const DEFAULT_TTL_SECONDS = 300;
/** A token that would run out on its way is not worth sending. */
const MIN_LIFE_SECONDS = 5;

export interface InvocationRequest {
  /** The oracle; the delegation must be addressed to its DID. */
  readonly signer: Signer;
  readonly delegation: VerifiedDelegation;
  /** The DID of the service to be called. */
  readonly audience: string;
  readonly can: string;
  readonly with: string;
  readonly nb?: IpldMap;
  readonly ttlSeconds?: number;
  readonly clock?: Clock;
}

/** Mints the call of a service on behalf of a user, with the user's delegation as its proof. */
export function mintInvocation(request: InvocationRequest): Result<MintedToken, UcanError> {
  const { signer, delegation, audience, ttlSeconds = DEFAULT_TTL_SECONDS } = request;
  const now = (request.clock ?? systemClock)();
  const capability = toCapability(request);
  if (delegation.audience !== signer.did) {
    return refuse('chain_broken', `the delegation is for ${delegation.audience}`);
  }
  if (!isCovered(capability, delegation.capabilities)) {
    return refuse('not_covered', `${capability.can} at ${capability.with}`);
  }
  const expiration = Math.min(now + ttlSeconds, delegation.expiration);
  if (expiration - now < MIN_LIFE_SECONDS) {
    return refuse('too_short_lived', `${expiration - now} s left`);
  }
  const proofs = readProofs([delegation.token]);
  if (proofs.error) return proofs;
  const payload = {
    issuer: signer.did,
    audience,
    capabilities: [capability],
    expiration,
    ...readStart(proofs.ok.roots),
    facts: [nonceFact()],
    proofs: proofs.ok.links,
  };
  return issue(payload, signer, proofs.ok.blocks);
}

/** The bounds of a UCAN lie inside those of its proof. */
function readStart([delegation]: readonly Ucan[]): { readonly notBefore?: number } {
  return delegation?.notBefore === undefined ? {} : { notBefore: delegation.notBefore };
}

function toCapability({ can, with: resource, nb }: InvocationRequest): Capability {
  return { can, with: resource, ...(nb && { nb }) };
}

const CAR_TYPE = 'application/vnd.ipld.car';

/** What to POST to a ucanto service, with the fetch that the host trusts. */
export interface ServiceRequest {
  readonly method: 'POST';
  readonly headers: Readonly<Record<'content-type' | 'accept', string>>;
  readonly body: Uint8Array;
}

/** Wraps a minted invocation in the message ucanto services read. */
export function buildServiceRequest(minted: MintedToken): Result<ServiceRequest, UcanError> {
  // Not through `readToken`: with the invocation a chain may be longer than it accepts.
  const car = readCar(Buffer.from(minted.token, 'base64'));
  const link = car.ok && readArchiveRoot(car.ok.root);
  if (!car.ok || !link?.ok) return refuse('mint_invalid', 'not an archive of ours');
  const message = encodeCbor({ 'ucanto/message@7.0.0': { execute: [link.ok] } });
  return {
    ok: {
      method: 'POST',
      headers: { 'content-type': CAR_TYPE, accept: CAR_TYPE },
      body: encodeCar(createBlock(message), [...car.ok.blocks.values()]),
    },
  };
}

function createBlock(bytes: Uint8Array): Block {
  return { link: linkFromDigest(createHash('sha256').update(bytes).digest()), bytes };
}

/** Signs a UCAN and archives it with the UCANs it rests on. */
function issue(
  payload: UcanPayload,
  signer: Signer,
  proofs: readonly Block[],
): Result<MintedToken, UcanError> {
  const message = signingBytes(payload);
  const signature = concat([SIGNATURE_HEAD, signer.sign(message)]);
  const bytes = encodeUcan(payload, signature);
  if (!bytes) return refuse('mint_invalid', 'issuer or audience is not a DID');
  const block = createBlock(bytes);
  // Never mint a token that `readToken` refuses: capitals in `can`, lone surrogates, …
  const readable = readUcan(block);
  if (readable.error) return refuse('mint_invalid', readable.error.detail);
  if (!equalBytes(signingBytes(readable.ok), message)) {
    return refuse('mint_invalid', 'would be read as something else than was signed');
  }
  const car = encodeCar(createBlock(encodeArchiveRoot(block.link)), [...proofs, block]);
  return {
    ok: {
      cid: block.link.toString(),
      expiration: payload.expiration ?? Number.POSITIVE_INFINITY,
      token: Buffer.from(car).toString('base64'),
    },
  };
}

interface Proofs {
  /** The outermost UCAN of each token. */
  readonly roots: readonly Ucan[];
  readonly links: readonly Link[];
  /** All UCANs of all tokens, each once. */
  readonly blocks: readonly Block[];
}

/** Opens tokens that a new one is to rest on. */
function readProofs(tokens: readonly string[]): Result<Proofs, UcanError> {
  const roots: Ucan[] = [];
  const links: Link[] = [];
  const blocks = new Map<string, Block>();
  for (const text of tokens) {
    const token = readToken(text);
    if (token.error) return token;
    for (const ucan of token.ok.ucans.values()) blocks.set(ucan.cid, createBlock(ucan.bytes));
    roots.push(token.ok.root);
    links.push(createBlock(token.ok.root.bytes).link);
  }
  return { ok: { roots, links, blocks: [...blocks.values()] } };
}

/** Gives two tokens with the same content different CIDs. */
const nonceFact = (): IpldMap => ({ nonce: randomBytes(12).toString('base64url') });

export type MintRequest = Omit<InvocationRequest, 'signer' | 'clock'>;

/** Mints invocations and reuses them while they are fresh. */
export interface Minter {
  readonly did: string;
  mint(request: MintRequest): Result<MintedToken, UcanError>;
  /** Drops everything minted from a delegation and says how many there were. */
  forget(delegationCid: string): number;
}

interface Entry {
  readonly minted: MintedToken;
  readonly delegationCids: readonly string[];
  readonly renewAt: number;
}

/** Fewer seconds than this are too few to be handed out again. */
const MIN_LEFT_SECONDS = 30;

/** Builds a minter for one signer, with its own bounded cache. */
export function createMinter(options: {
  readonly signer: Signer;
  readonly clock?: Clock;
  /** What the cache may take in memory; 8 MiB by default. */
  readonly cacheBytes?: number;
}): Minter {
  const { signer, clock = systemClock, cacheBytes = 8 * 1024 * 1024 } = options;
  const entries = new LruMap<string, Entry>({ maxBytes: cacheBytes, measure: measureEntry });
  return {
    did: signer.did,
    mint(request) {
      const key = buildCacheKey(request);
      const known = entries.get(key);
      const now = clock();
      if (known && now < known.renewAt) return { ok: known.minted };
      const minted = mintInvocation({ ...request, signer, clock: () => now });
      if (minted.ok) entries.set(key, createEntry(minted.ok, request, now));
      return minted;
    },
    forget: (cid) => entries.deleteWhere(({ delegationCids }) => delegationCids.includes(cid)),
  };
}

function measureEntry({ minted, delegationCids }: Entry, key: string): number {
  const texts = [key, minted.cid, minted.token, ...delegationCids];
  return texts.reduce((bytes, text) => bytes + textBytes(text), 200);
}

/** User, delegation, service, ability, resource and caveats; a change of any mints again. */
function buildCacheKey({
  delegation,
  audience,
  can,
  with: resource,
  nb,
  ttlSeconds,
}: MintRequest): string {
  const caveats = encodeDagJson(nb ?? {});
  return JSON.stringify([
    delegation.did,
    delegation.cid,
    audience,
    can,
    resource,
    caveats,
    ttlSeconds ?? null,
  ]);
}

function createEntry(minted: MintedToken, { delegation }: MintRequest, now: number): Entry {
  const half = now + (minted.expiration - now) / 2;
  return {
    minted,
    delegationCids: delegation.cids,
    renewAt: Math.min(half, minted.expiration - MIN_LEFT_SECONDS),
  };
}
