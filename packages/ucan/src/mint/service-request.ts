import type { Result } from '@sibyl/protocol';
import { encodeCar } from '../codec/archive.js';
import { encodeCbor } from '../codec/cbor-encode.js';
import { refuse, type UcanFault } from '../fault.js';
import { readArchiveRoot } from '../gate/read-archive-root.js';
import { readCar } from '../gate/read-car.js';
import { blockOf } from './issue.js';
import type { MintedToken } from './minted-token.js';

const CAR_TYPE = 'application/vnd.ipld.car';

/** What is to be POSTed to a ucanto service, through whatever fetch the host trusts. */
export interface ServiceRequest {
  readonly method: 'POST';
  readonly headers: Readonly<Record<'content-type' | 'accept', string>>;
  readonly body: Uint8Array;
}

/** Wraps a minted invocation in the message ucanto services read. */
export function serviceRequest(minted: MintedToken): Result<ServiceRequest, UcanFault> {
  // Not through the gate: with the invocation a chain may be longer than the gate would let in.
  const car = readCar(Buffer.from(minted.token, 'base64'));
  const link = car.ok && readArchiveRoot(car.ok.root);
  if (!car.ok || !link?.ok) return refuse('mint_invalid', 'not an archive of ours');
  const message = encodeCbor({ 'ucanto/message@7.0.0': { execute: [link.ok] } });
  return {
    ok: {
      method: 'POST',
      headers: { 'content-type': CAR_TYPE, accept: CAR_TYPE },
      body: encodeCar(blockOf(message), [...car.ok.blocks.values()]),
    },
  };
}
