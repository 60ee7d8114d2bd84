import { refuseDid } from '../did-fault.js';
import type { DidResolver } from '../did-resolver.js';
import { keysOfDocument } from '../document/did-document.js';
import {
  type DidFetch,
  type FetchLimits,
  fetchJson,
  type JsonAnswer,
  unexpectedStatus,
} from '../document/fetch-json.js';
import { fieldOf, isRecord } from '../document/fields.js';

export interface IxoSource {
  readonly url: string;
  readonly fetch: DidFetch;
  readonly limits: FetchLimits;
}

/** Reads did:ixo from a node's REST interface, the source of truth. */
export function createChainResolver({ url, fetch, limits }: IxoSource): DidResolver {
  return {
    async resolve(did) {
      const asked = `${url.replace(/\/+$/, '')}/ixo/did/dids/${did}`;
      const { ok: answer, error } = await fetchJson({ url: asked, fetch, limits });
      if (error) return { error };
      if (isNotFound(answer)) return refuseDid('did_not_found', 'the chain does not know the DID');
      if (answer.status !== 200) return unexpectedStatus(asked, answer.status);
      const document = isRecord(answer.json) ? fieldOf(answer.json, 'iidDocument') : undefined;
      return keysOfDocument(document, did, 'required');
    },
  };
}

/** The chain's own error has no gRPC code, so a node passes it on as an internal one with this text. */
function isNotFound({ status, json }: JsonAnswer): boolean {
  if (status === 404) return true;
  if (status < 400 || !isRecord(json)) return false;
  const { code, message } = json;
  return code === 5 || (typeof message === 'string' && /did document not found/i.test(message));
}
