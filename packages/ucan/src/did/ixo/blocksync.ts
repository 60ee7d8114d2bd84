import { refuseDid } from '../did-fault.js';
import type { DidResolver } from '../did-resolver.js';
import { keysOfDocument } from '../document/did-document.js';
import { fetchJson, unexpectedStatus } from '../document/fetch-json.js';
import { isRecord } from '../document/fields.js';
import type { IxoSource } from './chain-rest.js';

const FIELDS = [
  'id',
  'verificationMethod',
  'authentication',
  'assertionMethod',
  'capabilityInvocation',
  'capabilityDelegation',
  'metadata',
].join(' ');
const QUERY = `query($id:String!){iids(filter:{id:{equalTo:$id}}){nodes{${FIELDS}}}}`;

/**
 * Reads did:ixo from the Blocksync index. An index that leaves the relationships out cannot say which keys sign, so
 * every Ed25519 verification method counts there; one that gives them is held to them.
 */
export function createBlocksyncResolver({ url, fetch, limits }: IxoSource): DidResolver {
  return {
    async resolve(did) {
      const body = { query: QUERY, variables: { id: did } };
      const { ok: answer, error } = await fetchJson({ url, fetch, limits, body });
      if (error) return { error };
      if (answer.status !== 200) return unexpectedStatus(url, answer.status);
      if (hasErrors(answer.json))
        return refuseDid('did_unavailable', 'Blocksync refused the query');
      const nodes = nodesOf(answer.json);
      if (!nodes) return refuseDid('did_invalid', 'Blocksync answered without nodes');
      if (nodes.length === 0) return refuseDid('did_not_found', 'Blocksync does not know the DID');
      if (nodes.length > 1) return refuseDid('did_invalid', 'Blocksync knows the DID twice');
      return keysOfDocument(nodes[0], did, 'assumed');
    },
  };
}

function hasErrors(json: unknown): boolean {
  return isRecord(json) && Array.isArray(json.errors) && json.errors.length > 0;
}

function nodesOf(json: unknown): unknown[] | undefined {
  const data = isRecord(json) ? json.data : undefined;
  const iids = isRecord(data) ? data.iids : undefined;
  const nodes = isRecord(iids) ? iids.nodes : undefined;
  return Array.isArray(nodes) ? nodes : undefined;
}
