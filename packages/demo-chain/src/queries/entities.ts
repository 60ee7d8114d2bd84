import type { JsonObject } from '@bufbuild/protobuf';
import { ENTITIES, IID_DOCUMENTS } from '../records/entities.js';
import { makeAddress, makeContractAddress } from '../records/identifiers.js';
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
