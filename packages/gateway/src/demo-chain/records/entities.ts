import type { JsonObject } from '@bufbuild/protobuf';
import { addressOf, cidOf, didOf, entityDidOf } from './identifiers.js';
import { PEOPLE, PROFILES, type Profile } from './profiles.js';

const MIDNIGHT = 'T00:00:00Z';
const RELAYER = entityDidOf('Relayer of the demo chain');
const CONTEXT = [
  { key: '', val: 'https://www.w3.org/ns/did/v1' },
  { key: 'ixo', val: 'https://w3id.org/ixo/ns/protocol/' },
];

/** Records of `ixo.entity.v1beta1.Entity`. */
export const ENTITIES: readonly JsonObject[] = PROFILES.map((profile) => ({
  id: entityDidOf(profile.name),
  type: profile.type,
  start_date: profile.since + MIDNIGHT,
  ...(profile.until && { end_date: profile.until + MIDNIGHT }),
  status: 0,
  relayer_node: RELAYER,
  credentials: profile.isVerified ? [cidOf(`credential of ${profile.name}`)] : [],
  entity_verified: profile.isVerified ?? false,
  metadata: metadataOf(profile),
  accounts: [{ name: 'admin', address: addressOf(`admin of ${profile.name}`) }],
}));

/** Records of `ixo.iid.v1beta1.IidDocument`: of every entity and of every person. */
export const IID_DOCUMENTS: readonly JsonObject[] = [
  ...PROFILES.map(documentOfEntity),
  ...PEOPLE.map(documentOfPerson),
];

function documentOfEntity(profile: Profile): JsonObject {
  const id = entityDidOf(profile.name);
  const { version_id, ...dates } = metadataOf(profile);
  return {
    context: CONTEXT,
    id,
    controller: [didOf(profile.owner)],
    verificationMethod: [keyOf(id, addressOf(`admin of ${profile.name}`))],
    authentication: [`${id}#owner`],
    service: [{ id: '{id}#demo', type: 'LinkedDomains', serviceEndpoint: 'https://demo.invalid' }],
    linkedResource: [profileResource(profile)],
    linkedEntity: profile.of ? [belongsTo(profile.of)] : [],
    alsoKnownAs: profile.name,
    metadata: { versionId: version_id, ...dates },
  };
}

function documentOfPerson(name: string): JsonObject {
  const id = didOf(name);
  return {
    context: CONTEXT,
    id,
    controller: [id],
    verificationMethod: [keyOf(id, addressOf(name))],
    authentication: [`${id}#owner`],
    alsoKnownAs: name,
    metadata: { versionId: cidOf(name), created: `2021-05-01${MIDNIGHT}` },
  };
}

function keyOf(did: string, address: string) {
  return {
    id: `${did}#owner`,
    type: 'CosmosAccountAddress',
    controller: did,
    blockchainAccountID: address,
  };
}

function profileResource({ name, about }: Profile) {
  const cid = cidOf(about);
  return {
    type: 'Settings',
    id: '{id}#profile',
    description: `${name}. ${about}`,
    mediaType: 'application/ld+json',
    serviceEndpoint: `ipfs:${cid}`,
    proof: cid,
    encrypted: 'false',
  };
}

function belongsTo(name: string) {
  return { type: 'entity', id: entityDidOf(name), relationship: 'partOf' };
}

function metadataOf({ name, since }: Profile) {
  const created = since + MIDNIGHT;
  return { version_id: cidOf(`version of ${name}`), created, updated: created };
}
