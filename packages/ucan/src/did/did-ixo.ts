import {
  type DidFetch,
  FETCH_LIMITS,
  type FetchLimits,
  fetchJson,
  isRecord,
  type JsonAnswer,
  readDocumentKeys,
  readField,
  unexpectedStatus,
} from './did-document.js';
import {
  createSingleFlight,
  type DidResolver,
  didMethod,
  IXO_NEEDS,
  refuseDid,
} from './did-resolver.js';

export interface DidIxoOptions {
  readonly chainRestUrl?: string | undefined;
  readonly blocksyncUrl?: string | undefined;
  readonly fetch: DidFetch;
  /** 256 KiB and 3 s for each request by default. */
  readonly limits?: Partial<FetchLimits> | undefined;
  /** Lookups in progress at most, 50 by default; beyond it the error is `did_busy`. */
  readonly maxPending?: number | undefined;
}

/** Resolves did:ixo from the chain, and from Blocksync when the chain is not configured or not available. */
export function createDidIxoResolver(options: DidIxoOptions): DidResolver {
  const sources = createSources(options);
  const resolve = createSingleFlight((did) => askInTurn(sources, did), options.maxPending);
  return {
    async resolve(did) {
      // Percent signs would be read differently by the chain's path and by Blocksync's variable.
      if (didMethod(did) !== 'ixo' || did.includes('%')) {
        return refuseDid('did_invalid', 'not a did:ixo');
      }
      return resolve(did);
    },
  };
}

function createSources({
  chainRestUrl,
  blocksyncUrl,
  fetch,
  limits,
}: DidIxoOptions): DidResolver[] {
  const common = { fetch, limits: { ...FETCH_LIMITS, ...limits } };
  return [
    ...(chainRestUrl ? [createChainResolver({ ...common, url: chainRestUrl })] : []),
    ...(blocksyncUrl ? [createBlocksyncResolver({ ...common, url: blocksyncUrl })] : []),
  ];
}

/** Only an unavailable source leads to the next one: any other answer is final. */
async function askInTurn(sources: readonly DidResolver[], did: string) {
  const details: string[] = [];
  for (const source of sources) {
    const result = await source.resolve(did);
    if (result.error?.code !== 'did_unavailable') return result;
    details.push(result.error.detail);
  }
  if (details.length === 0) return refuseDid('did_unsupported', IXO_NEEDS);
  return refuseDid('did_unavailable', details.join('; '));
}

interface IxoSource {
  readonly url: string;
  readonly fetch: DidFetch;
  readonly limits: FetchLimits;
}

/** Reads did:ixo from a node's REST interface, the source of truth. */
function createChainResolver({ url, fetch, limits }: IxoSource): DidResolver {
  return {
    async resolve(did) {
      const asked = `${url.replace(/\/+$/, '')}/ixo/did/dids/${did}`;
      const { ok: answer, error } = await fetchJson({ url: asked, fetch, limits });
      if (error) return { error };
      if (isNotFound(answer)) return refuseDid('did_not_found', 'the chain does not know the DID');
      if (answer.status !== 200) return unexpectedStatus(asked, answer.status);
      const document = isRecord(answer.json) ? readField(answer.json, 'iidDocument') : undefined;
      return readDocumentKeys(document, did, 'required');
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
function createBlocksyncResolver({ url, fetch, limits }: IxoSource): DidResolver {
  return {
    async resolve(did) {
      const body = { query: QUERY, variables: { id: did } };
      const { ok: answer, error } = await fetchJson({ url, fetch, limits, body });
      if (error) return { error };
      if (answer.status !== 200) return unexpectedStatus(url, answer.status);
      if (hasErrors(answer.json))
        return refuseDid('did_unavailable', 'Blocksync refused the query');
      const nodes = readNodes(answer.json);
      if (!nodes) return refuseDid('did_invalid', 'Blocksync answered without nodes');
      if (nodes.length === 0) return refuseDid('did_not_found', 'Blocksync does not know the DID');
      if (nodes.length > 1) return refuseDid('did_invalid', 'Blocksync knows the DID twice');
      return readDocumentKeys(nodes[0], did, 'assumed');
    },
  };
}

function hasErrors(json: unknown): boolean {
  return isRecord(json) && Array.isArray(json.errors) && json.errors.length > 0;
}

function readNodes(json: unknown): unknown[] | undefined {
  const data = isRecord(json) ? json.data : undefined;
  const iids = isRecord(data) ? data.iids : undefined;
  const nodes = isRecord(iids) ? iids.nodes : undefined;
  return Array.isArray(nodes) ? nodes : undefined;
}
