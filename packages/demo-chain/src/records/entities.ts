import type { JsonObject } from '@bufbuild/protobuf';
import { makeAddress, makeCid, makeDid, makeEntityDid } from './identifiers.js';

/** The description of an entity of the demo chain. */
export interface Profile {
  readonly name: string;
  readonly type: string;
  readonly about: string;
  /** The name of the person who acts for it. */
  readonly owner: string;
  /** The entity it belongs to, by name. */
  readonly of?: string;
  readonly since: string;
  readonly until?: string;
  readonly isVerified?: boolean;
}

/** People who own entities, do the work and judge claims about it. */
export const PEOPLE = [
  'Achieng Odhiambo',
  'Baraka Mwangi',
  'Chipo Dube',
  'Daniel Kiprono',
  'Esther Nakato',
  'Farida Hassan',
  'Grace Wanjiru',
  'Hamisi Juma',
] as const;

const COOKING = 'Clean cooking in Kisumu County';
const SOIL = 'Soil carbon of the Laikipia rangelands';
const WATER = 'Clean water for schools in Turkana';
const MANGROVES = 'Mangroves of Gazi Bay';
const SOLAR = 'Solar irrigation in Busia';

export const PROJECTS = { COOKING, SOIL, WATER, MANGROVES, SOLAR } as const;

const stove = (serial: string, since: string): Profile => ({
  name: `Pellet stove ${serial}`,
  type: 'asset/device',
  about: 'A forced-draft pellet stove that meters every minute of cooking.',
  owner: 'Achieng Odhiambo',
  of: COOKING,
  since,
  isVerified: true,
});

const probe = (serial: string, since: string): Profile => ({
  name: `Soil probe ${serial}`,
  type: 'asset/device',
  about: 'Moisture, temperature and carbon dioxide at 10, 30 and 60 cm, every hour.',
  owner: 'Daniel Kiprono',
  of: SOIL,
  since,
});

const pump = (school: string, since: string): Profile => ({
  name: `Borehole pump of ${school}`,
  type: 'asset/device',
  about: 'A solar pump with a flow meter and a sensor of turbidity.',
  owner: 'Esther Nakato',
  of: WATER,
  since,
  isVerified: true,
});

export const PROFILES: readonly Profile[] = [
  {
    name: 'Lake Basin Cooperative',
    type: 'dao',
    about: 'Households around Lake Victoria that own their stoves, pumps and credits together.',
    owner: 'Achieng Odhiambo',
    since: '2022-02-01',
    isVerified: true,
  },
  {
    name: 'Rangelands Trust',
    type: 'dao',
    about: 'Eleven conservancies that graze by plan and share what the soil earns.',
    owner: 'Daniel Kiprono',
    since: '2021-06-15',
    isVerified: true,
  },
  {
    name: COOKING,
    type: 'project',
    about: 'Pellet stoves for 4,000 households; fuel saved is metered, not estimated.',
    owner: 'Achieng Odhiambo',
    of: 'Lake Basin Cooperative',
    since: '2022-09-01',
    until: '2032-08-31',
    isVerified: true,
  },
  {
    name: SOIL,
    type: 'project',
    about: 'Planned grazing on 85,000 hectares; carbon is sampled to one metre every second year.',
    owner: 'Daniel Kiprono',
    of: 'Rangelands Trust',
    since: '2021-07-01',
    until: '2041-06-30',
    isVerified: true,
  },
  {
    name: WATER,
    type: 'project',
    about: 'Boreholes and filters for 36 schools; litres are counted at the tap.',
    owner: 'Esther Nakato',
    since: '2023-01-15',
    until: '2030-12-31',
    isVerified: true,
  },
  {
    name: MANGROVES,
    type: 'project',
    about: 'Replanting of 117 hectares of mangrove; seedlings are counted from the air.',
    owner: 'Farida Hassan',
    since: '2023-03-20',
    until: '2043-03-19',
  },
  {
    name: SOLAR,
    type: 'project',
    about: 'Pumps that replace diesel on 300 smallholdings.',
    owner: 'Baraka Mwangi',
    of: 'Lake Basin Cooperative',
    since: '2024-05-01',
    until: '2034-04-30',
  },
  {
    name: 'Metered cooking, version 2',
    type: 'protocol',
    about: 'How saved fuel is computed from the minutes a stove has burned.',
    owner: 'Grace Wanjiru',
    since: '2022-05-10',
    isVerified: true,
  },
  {
    name: 'Soil sampling to one metre',
    type: 'protocol',
    about: 'Where cores are taken, how they are dried, and who may count them.',
    owner: 'Grace Wanjiru',
    since: '2021-05-01',
    isVerified: true,
  },
  {
    name: 'Litres at the tap',
    type: 'protocol',
    about: 'Flow and turbidity of water as it is drawn.',
    owner: 'Grace Wanjiru',
    since: '2022-12-01',
  },
  {
    name: 'Fuel verifier',
    type: 'oracle',
    about: 'Checks cooking claims against the readings of the stoves.',
    owner: 'Hamisi Juma',
    since: '2022-08-20',
    isVerified: true,
  },
  {
    name: 'Field verifier',
    type: 'oracle',
    about: 'Checks soil, water and mangrove claims against samples and photographs.',
    owner: 'Chipo Dube',
    since: '2022-10-05',
    isVerified: true,
  },
  stove('KSM-00117', '2022-10-03'),
  stove('KSM-00204', '2022-10-11'),
  stove('KSM-00861', '2023-02-07'),
  stove('KSM-01342', '2023-06-19'),
  stove('KSM-02977', '2024-01-30'),
  probe('LKP-014', '2021-09-12'),
  probe('LKP-027', '2021-09-14'),
  probe('LKP-051', '2022-04-02'),
  pump('Lodwar Girls', '2023-03-06'),
  pump('Kakuma Primary', '2023-04-17'),
  pump('Lokichar Primary', '2023-08-28'),
];

const MIDNIGHT = 'T00:00:00Z';
const RELAYER = makeEntityDid('Relayer of the demo chain');
const CONTEXT = [
  { key: '', val: 'https://www.w3.org/ns/did/v1' },
  { key: 'ixo', val: 'https://w3id.org/ixo/ns/protocol/' },
];

/** Records of `ixo.entity.v1beta1.Entity`. */
export const ENTITIES: readonly JsonObject[] = PROFILES.map((profile) => ({
  id: makeEntityDid(profile.name),
  type: profile.type,
  start_date: profile.since + MIDNIGHT,
  ...(profile.until && { end_date: profile.until + MIDNIGHT }),
  status: 0,
  relayer_node: RELAYER,
  credentials: profile.isVerified ? [makeCid(`credential of ${profile.name}`)] : [],
  entity_verified: profile.isVerified ?? false,
  metadata: buildMetadata(profile),
  accounts: [{ name: 'admin', address: makeAddress(`admin of ${profile.name}`) }],
}));

/** Records of `ixo.iid.v1beta1.IidDocument`: of every entity and of every person. */
export const IID_DOCUMENTS: readonly JsonObject[] = [
  ...PROFILES.map(buildEntityDocument),
  ...PEOPLE.map(buildPersonDocument),
];

function buildEntityDocument(profile: Profile): JsonObject {
  const id = makeEntityDid(profile.name);
  const { version_id, ...dates } = buildMetadata(profile);
  return {
    context: CONTEXT,
    id,
    controller: [makeDid(profile.owner)],
    verificationMethod: [buildVerificationMethod(id, makeAddress(`admin of ${profile.name}`))],
    authentication: [`${id}#owner`],
    service: [{ id: '{id}#demo', type: 'LinkedDomains', serviceEndpoint: 'https://demo.invalid' }],
    linkedResource: [profileResource(profile)],
    linkedEntity: profile.of ? [belongsTo(profile.of)] : [],
    alsoKnownAs: profile.name,
    metadata: { versionId: version_id, ...dates },
  };
}

function buildPersonDocument(name: string): JsonObject {
  const id = makeDid(name);
  return {
    context: CONTEXT,
    id,
    controller: [id],
    verificationMethod: [buildVerificationMethod(id, makeAddress(name))],
    authentication: [`${id}#owner`],
    alsoKnownAs: name,
    metadata: { versionId: makeCid(name), created: `2021-05-01${MIDNIGHT}` },
  };
}

function buildVerificationMethod(did: string, address: string) {
  return {
    id: `${did}#owner`,
    type: 'CosmosAccountAddress',
    controller: did,
    blockchainAccountID: address,
  };
}

function profileResource({ name, about }: Profile) {
  const cid = makeCid(about);
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
  return { type: 'entity', id: makeEntityDid(name), relationship: 'partOf' };
}

function buildMetadata({ name, since }: Profile) {
  const created = since + MIDNIGHT;
  return { version_id: makeCid(`version of ${name}`), created, updated: created };
}
