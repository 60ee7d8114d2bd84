import type { JsonObject } from '@bufbuild/protobuf';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { ENTITIES, IID_DOCUMENTS } from '../records/entities.js';
import { makeAddress, makeContractAddress } from '../records/identifiers.js';
import { TOKEN_METADATA, TOKENS } from '../records/tokens.js';
import { found, paginate, required, type ServiceHandlers } from './service.js';

const STORED_ENTITIES = ENTITIES.map((record) => ({ key: String(record.id), record }));

function findEntity(request: JsonObject): JsonObject {
  const id = required(request, 'id');
  return found(ENTITIES, (entity) => entity.id === id, `entity ${id}`);
}

function findDocument({ id }: JsonObject): JsonObject {
  return found(IID_DOCUMENTS, (document) => document.id === id, `document of ${id}`);
}

export const entityHandlers: ServiceHandlers = {
  Params: () => ({
    params: {
      nftContractAddress: makeContractAddress('entities'),
      nftContractMinter: makeAddress('minter of entities'),
      createSequence: String(ENTITIES.length),
    },
  }),
  Entity(request) {
    const entity = findEntity(request);
    return { entity, iidDocument: findDocument(entity) };
  },
  EntityMetaData: (request) => ({ entity: findEntity(request) }),
  EntityIidDocument: (request) => ({ iidDocument: findDocument(findEntity(request)) }),
  EntityVerified: (request) => ({ entity_verified: findEntity(request).entity_verified ?? false }),
  EntityList({ pagination: page }) {
    const { records, pagination } = paginate(STORED_ENTITIES, page);
    return { entities: records, pagination };
  },
};

const STORED_DOCUMENTS = IID_DOCUMENTS.map((record) => ({ key: String(record.id), record }));

export const iidHandlers: ServiceHandlers = {
  IidDocuments({ pagination: page }) {
    const { records, pagination } = paginate(STORED_DOCUMENTS, page);
    return { iidDocuments: records, pagination };
  },
  IidDocument(request) {
    const id = required(request, 'id');
    return { iidDocument: found(IID_DOCUMENTS, (one) => one.id === id, `did document ${id}`) };
  },
};

/** The code id of the token contract. */
const CONTRACT_CODE = '25';

export const tokenHandlers: ServiceHandlers = {
  Params: () => ({ params: { ixo1155_contract_code: CONTRACT_CODE } }),
  TokenMetadata(request) {
    const id = required(request, 'id');
    const metadata = TOKEN_METADATA.get(id);
    if (metadata) return metadata;
    throw new GrpcError(GrpcCode.notFound, `token ${id} not found`);
  },
  TokenList(request) {
    const minter = required(request, 'minter');
    const minted = TOKENS.filter((token) => token.minter === minter);
    const stored = minted.map((record) => ({ key: String(record.contract_address), record }));
    const { records, pagination } = paginate(stored, request.pagination);
    return { pagination, tokenDocs: records };
  },
  TokenDoc(request) {
    const minter = required(request, 'minter');
    const contract = required(request, 'contract_address');
    const matches = (token: (typeof TOKENS)[number]) =>
      token.minter === minter && token.contract_address === contract;
    return { tokenDoc: found(TOKENS, matches, `token ${contract} of ${minter}`) };
  },
};
