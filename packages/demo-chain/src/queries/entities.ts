import type { JsonObject } from '@bufbuild/protobuf';
import { ENTITIES, IID_DOCUMENTS } from '../records/entities.js';
import { addressOf, contractOf } from '../records/identifiers.js';
import { found, paginate, required, type ServiceAnswers } from './service.js';

const STORED_ENTITIES = ENTITIES.map((record) => ({ key: String(record.id), record }));

function entityOf(request: JsonObject): JsonObject {
  const id = required(request, 'id');
  return found(ENTITIES, (entity) => entity.id === id, `entity ${id}`);
}

function documentOf({ id }: JsonObject): JsonObject {
  return found(IID_DOCUMENTS, (document) => document.id === id, `document of ${id}`);
}

export const entityAnswers: ServiceAnswers = {
  Params: () => ({
    params: {
      nftContractAddress: contractOf('entities'),
      nftContractMinter: addressOf('minter of entities'),
      createSequence: String(ENTITIES.length),
    },
  }),
  Entity(request) {
    const entity = entityOf(request);
    return { entity, iidDocument: documentOf(entity) };
  },
  EntityMetaData: (request) => ({ entity: entityOf(request) }),
  EntityIidDocument: (request) => ({ iidDocument: documentOf(entityOf(request)) }),
  EntityVerified: (request) => ({ entity_verified: entityOf(request).entity_verified ?? false }),
  EntityList({ pagination: page }) {
    const { records, pagination } = paginate(STORED_ENTITIES, page);
    return { entities: records, pagination };
  },
};

const STORED_DOCUMENTS = IID_DOCUMENTS.map((record) => ({ key: String(record.id), record }));

export const iidAnswers: ServiceAnswers = {
  IidDocuments({ pagination: page }) {
    const { records, pagination } = paginate(STORED_DOCUMENTS, page);
    return { iidDocuments: records, pagination };
  },
  IidDocument(request) {
    const id = required(request, 'id');
    return { iidDocument: found(IID_DOCUMENTS, (one) => one.id === id, `did document ${id}`) };
  },
};
