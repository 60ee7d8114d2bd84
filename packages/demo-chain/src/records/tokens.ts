import type { JsonObject } from '@bufbuild/protobuf';
import { PROJECTS } from './entities.js';
import {
  makeAddress,
  makeCid,
  makeContractAddress,
  makeEntityDid,
  makeTokenId,
} from './identifiers.js';

interface Batch {
  readonly id: string;
  readonly amount: number;
  readonly owner: string;
  readonly reason: string;
}

const batch = (name: string, amount: number, owner: string, reason: string): Batch => ({
  id: makeTokenId(name),
  amount,
  owner: makeAddress(owner),
  reason,
});

const written = ({ amount, ...rest }: Batch) => ({ ...rest, amount: String(amount) });
const retirement = (of: Batch) => ({ ...written(of), jurisdiction: 'KE' });

/** Records of `ixo.token.v1beta1.Token`. */
export const TOKENS: readonly JsonObject[] = [
  {
    minter: makeAddress(`admin of ${PROJECTS.COOKING}`),
    contract_address: makeContractAddress('KISUMU'),
    class: makeEntityDid(PROJECTS.COOKING),
    name: 'KISUMU',
    description: 'One kilogram of carbon dioxide not emitted by a metered stove.',
    image: `ipfs:${makeCid('image of KISUMU')}`,
    type: 'ixo1155',
    cap: '50000000',
    supply: '1843200',
    retired: [
      batch('KISUMU 2023', 120000, 'Baraka Mwangi', 'Offsets of a bakery, 2023'),
      batch('KISUMU 2024', 86500, 'Grace Wanjiru', 'Offsets of a conference'),
    ].map(retirement),
    cancelled: [batch('KISUMU 2022', 4100, 'Achieng Odhiambo', 'Faulty meter')].map(written),
    transferred: [
      {
        ...retirement(batch('KISUMU 2024', 25000, 'Hamisi Juma', 'Moved to another registry')),
        authorization_id: makeCid('authorization 1'),
      },
    ],
  },
  {
    minter: makeAddress(`admin of ${PROJECTS.SOIL}`),
    contract_address: makeContractAddress('LAIKIPIA'),
    class: makeEntityDid(PROJECTS.SOIL),
    name: 'LAIKIPIA',
    description: 'One tonne of carbon dioxide stored in soil for at least thirty years.',
    image: `ipfs:${makeCid('image of LAIKIPIA')}`,
    type: 'ixo1155',
    cap: '2500000',
    supply: '310450',
    retired: [batch('LAIKIPIA 2023', 9800, 'Chipo Dube', 'Offsets of a tea estate')].map(
      retirement,
    ),
  },
  {
    minter: makeAddress(`admin of ${PROJECTS.WATER}`),
    contract_address: makeContractAddress('TURKANA'),
    class: makeEntityDid(PROJECTS.WATER),
    name: 'TURKANA',
    description: 'One thousand litres of clean water drawn at a school.',
    image: `ipfs:${makeCid('image of TURKANA')}`,
    type: 'ixo1155',
    cap: '900000',
    supply: '71200',
    paused: true,
  },
];

/** Replies of `TokenMetadata` by token id. */
export const TOKEN_METADATA: ReadonlyMap<string, JsonObject> = new Map(
  [
    { token: 'KISUMU', year: 2022, project: PROJECTS.COOKING },
    { token: 'KISUMU', year: 2023, project: PROJECTS.COOKING },
    { token: 'KISUMU', year: 2024, project: PROJECTS.COOKING },
    { token: 'LAIKIPIA', year: 2023, project: PROJECTS.SOIL },
  ].map(({ token, year, project }) => [
    makeTokenId(`${token} ${year}`),
    {
      name: token,
      description: `Credits of ${year}`,
      decimals: '0',
      image: `ipfs:${makeCid(`image of ${token}`)}`,
      index: String(year),
      properties: {
        class: makeEntityDid(project),
        collection: makeContractAddress(token),
        cap: '0',
        linkedResources: [
          {
            uri: `ipfs:${makeCid(`${token} ${year} report`)}`,
            proof: makeCid(`${token} ${year} report`),
            type: 'application/json',
            id: 'report',
          },
        ],
      },
    },
  ]),
);
