import type { JsonObject } from '@bufbuild/protobuf';
import { PROJECTS } from './entities.js';
import {
  makeAddress,
  makeCid,
  makeContractAddress,
  makeDid,
  makeEntityDid,
} from './identifiers.js';

/** An amount of the chain's coin, which has a million parts. */
export const coins = (amount: number) => [
  { denom: 'uixo', amount: String(Math.round(amount * 1e6)) },
];

/** A percentage as the wire encodes decimals: a whole number of 10^-18. */
export const percent = (share: number): string => String(BigInt(share) * 10n ** 16n);

/** A collection of claims, without its counts. */
export interface CollectionRecord {
  readonly id: string;
  readonly entity: string;
  readonly quota: number;
  readonly terms: { readonly start_date: string; readonly end_date: string };
  readonly state: 'OPEN' | 'PAUSED' | 'CLOSED';
  /** The payment for an approved claim, in whole coins. */
  readonly reward: number;
  readonly protocol: string;
}

const record = (
  id: string,
  project: string,
  rest: Omit<CollectionRecord, 'id' | 'entity'>,
): CollectionRecord => ({ id, entity: makeEntityDid(project), ...rest });

/** The collection that receives new claims with new blocks. */
export const LIVE_COLLECTION = '1';

export const COLLECTIONS: readonly CollectionRecord[] = [
  record(LIVE_COLLECTION, PROJECTS.COOKING, {
    protocol: 'Metered cooking, version 2',
    quota: 1000,
    state: 'OPEN',
    reward: 2.5,
    terms: { start_date: '2022-10-01T00:00:00Z', end_date: '2032-08-31T00:00:00Z' },
  }),
  record('2', PROJECTS.SOIL, {
    protocol: 'Soil sampling to one metre',
    quota: 120,
    state: 'OPEN',
    reward: 180,
    terms: { start_date: '2021-07-01T00:00:00Z', end_date: '2041-06-30T00:00:00Z' },
  }),
  record('3', PROJECTS.WATER, {
    protocol: 'Litres at the tap',
    quota: 36,
    state: 'OPEN',
    reward: 12,
    terms: { start_date: '2023-02-01T00:00:00Z', end_date: '2030-12-31T00:00:00Z' },
  }),
  record('4', PROJECTS.MANGROVES, {
    protocol: 'Soil sampling to one metre',
    quota: 10,
    state: 'PAUSED',
    reward: 60,
    terms: { start_date: '2023-04-01T00:00:00Z', end_date: '2043-03-19T00:00:00Z' },
  }),
];

/** The fields of `ixo.claims.v1beta1.Collection` that no claim changes. */
export function describeCollection(record: CollectionRecord) {
  const { id, entity, protocol, quota, state, terms, reward } = record;
  const payer = makeAddress(`admin of ${id}`);
  return {
    id,
    entity,
    admin: payer,
    protocol: makeEntityDid(protocol),
    ...terms,
    quota: String(quota),
    state,
    payments: {
      submission: payment(payer, 0),
      evaluation: { ...payment(payer, reward / 10), is_oracle_payment: true },
      approval: payment(payer, reward),
      rejection: payment(payer, 0),
    },
    signer: makeAddress(`signer of ${id}`),
    escrow_account: makeContractAddress(`escrow of ${id}`),
    intents: 'ALLOW',
    service_agent_deposit_required: coins(reward),
    evaluator_deposit_required: coins(reward),
    dispute_deposit_amount: coins(reward * 2),
    penalty_amount_per_dispute: coins(reward),
    min_deposit_period: '604800s',
    adjudicators: [{ did: makeEntityDid('Field verifier'), reward_percentage: percent(10) }],
  };
}

const payment = (account: string, amount: number) => ({
  account,
  amount: amount > 0 ? coins(amount) : [],
  timeout_ns: '0s',
});

/** A claim about completed work, evaluated or pending. */
export interface ClaimRecord {
  readonly id: string;
  readonly collection: string;
  readonly agent: string;
  readonly submitted: Date;
  readonly evaluated?: Date;
  readonly verdict: 'PENDING' | 'APPROVED' | 'REJECTED' | 'DISPUTED';
}

type Row = [collection: string, agent: string, submitted: string, verdict: ClaimRecord['verdict']];

const DAY_MS = 86_400_000;
const EVALUATED_AFTER_MS = 3 * DAY_MS;

/** Claims from before the demo chain began. */
const ROWS: readonly Row[] = [
  ['2', 'Daniel Kiprono', '2021-09-30T14:05:00Z', 'APPROVED'],
  ['2', 'Daniel Kiprono', '2022-03-04T09:41:00Z', 'APPROVED'],
  ['2', 'Chipo Dube', '2022-09-27T11:20:00Z', 'REJECTED'],
  ['2', 'Daniel Kiprono', '2023-03-15T10:02:00Z', 'APPROVED'],
  ['2', 'Daniel Kiprono', '2023-09-22T16:44:00Z', 'APPROVED'],
  ['2', 'Daniel Kiprono', '2024-03-19T08:30:00Z', 'DISPUTED'],
  ['2', 'Chipo Dube', '2025-03-21T12:12:00Z', 'PENDING'],
  ['3', 'Esther Nakato', '2023-03-31T17:00:00Z', 'APPROVED'],
  ['3', 'Esther Nakato', '2023-06-30T17:00:00Z', 'APPROVED'],
  ['3', 'Esther Nakato', '2023-09-30T17:00:00Z', 'APPROVED'],
  ['3', 'Hamisi Juma', '2023-12-31T17:00:00Z', 'REJECTED'],
  ['3', 'Esther Nakato', '2024-03-31T17:00:00Z', 'APPROVED'],
  ['3', 'Esther Nakato', '2024-06-30T17:00:00Z', 'PENDING'],
  ['4', 'Farida Hassan', '2023-10-08T06:15:00Z', 'APPROVED'],
  ['4', 'Farida Hassan', '2024-04-11T06:50:00Z', 'DISPUTED'],
  ['4', 'Farida Hassan', '2024-10-02T07:05:00Z', 'PENDING'],
];

export const PAST_CLAIMS: readonly ClaimRecord[] = ROWS.map(
  ([collection, agent, submitted, verdict]) => ({
    id: makeCid(`${collection} ${agent} ${submitted}`),
    collection,
    agent,
    submitted: new Date(submitted),
    ...(verdict !== 'PENDING' && {
      evaluated: new Date(Date.parse(submitted) + EVALUATED_AFTER_MS),
    }),
    verdict,
  }),
);

/** The claims of the live collection: one every so many blocks, evaluated some blocks later. */
const BLOCKS_PER_CLAIM = 30;
const BLOCKS_UNTIL_EVALUATION = 45;
const ONE_IN_THIS_MANY_IS_REJECTED = 8;
const COOKS = ['Achieng Odhiambo', 'Baraka Mwangi', 'Esther Nakato'] as const;

/** The claims that exist at a block, up to the quota of the collection. */
export function liveClaimsAt(height: number, most: number, getTime: (height: number) => Date) {
  const count = Math.min(most, Math.floor(height / BLOCKS_PER_CLAIM));
  return Array.from({ length: count }, (_, i): ClaimRecord => {
    const submittedIn = (i + 1) * BLOCKS_PER_CLAIM;
    const evaluatedIn = submittedIn + BLOCKS_UNTIL_EVALUATION;
    const claim = {
      id: makeCid(`cooking claim ${i}`),
      collection: LIVE_COLLECTION,
      agent: COOKS[i % COOKS.length] as string,
      submitted: getTime(submittedIn),
    };
    if (evaluatedIn > height) return { ...claim, verdict: 'PENDING' };
    const isRejected = i % ONE_IN_THIS_MANY_IS_REJECTED === 5;
    const verdict = isRejected ? 'REJECTED' : 'APPROVED';
    return { ...claim, evaluated: getTime(evaluatedIn), verdict };
  });
}

const document = (text: string) => ({
  uri: `ipfs:${makeCid(text)}`,
  type: 'application/pdf',
  proof: makeCid(text),
  encrypted: false,
});

const [soil, mangroves] = PAST_CLAIMS.filter(({ verdict }) => verdict === 'DISPUTED');

/** Records of `ixo.claims.v1beta1.Dispute`. */
export const DISPUTES: readonly JsonObject[] = [
  {
    subject_id: soil?.id ?? '',
    type: 1,
    data: document('Cores of plot 14 were taken after the rains'),
    target_role: 'DISPUTE_TARGET_ROLE_SUBMITTER',
    disputer_address: makeAddress('Grace Wanjiru'),
    disputer_did: makeDid('Grace Wanjiru'),
    dispute_deposit: coins(360),
    submitted_at: '2024-04-02T08:00:00Z',
    status: 'DISPUTE_STATUS_OPEN',
  },
  {
    subject_id: mangroves?.id ?? '',
    type: 1,
    data: document('Seedlings counted twice where two singleFlight overlap'),
    target_role: 'DISPUTE_TARGET_ROLE_EVALUATOR',
    disputer_address: makeAddress('Hamisi Juma'),
    disputer_did: makeDid('Hamisi Juma'),
    dispute_deposit: coins(120),
    submitted_at: '2024-04-20T10:30:00Z',
    status: 'DISPUTE_STATUS_AWARDED',
    resolution: {
      adjudicator_did: makeEntityDid('Field verifier'),
      adjudicator_address: makeAddress('Chipo Dube'),
      adjudicator_payout_address: makeAddress('Chipo Dube'),
      resolved_at: '2024-05-06T15:45:00Z',
      data: document('The overlap is 3.2 hectares; the count was corrected'),
      intended_penalty: coins(60),
      actual_penalty_paid: coins(60),
      winner_amount: coins(54),
      adjudicator_amount: coins(6),
      winner_address: makeAddress('Hamisi Juma'),
      loser_address: makeAddress('Farida Hassan'),
    },
  },
];

const AGENTS = ['Achieng Odhiambo', 'Daniel Kiprono', 'Esther Nakato', 'Farida Hassan'];

/** Each collection and the person who works for it. */
const assignments = COLLECTIONS.map(({ id, reward }, i) => ({
  id,
  reward,
  agent: AGENTS[i] ?? 'Achieng Odhiambo',
}));

/** Records of `ixo.claims.v1beta1.Intent`: announced work with reserved funds. */
export const INTENTS: readonly JsonObject[] = assignments.map(({ id, reward, agent }, i) => ({
  id: String(i + 1),
  agent_did: makeDid(agent),
  agent_address: makeAddress(agent),
  collection_id: id,
  created_at: `2025-0${i + 1}-10T08:00:00Z`,
  expire_at: `2025-0${i + 1}-17T08:00:00Z`,
  status: i === 0 ? 'ACTIVE' : 'EXPIRED',
  amount: coins(reward),
  from_address: makeAddress(`admin of ${id}`),
  escrow_address: makeContractAddress(`escrow of ${id}`),
}));

/** Records of `ixo.claims.v1beta1.MemberBudget`. */
export const MEMBER_BUDGETS: readonly JsonObject[] = assignments.map(({ id, reward, agent }) => ({
  collection_id: id,
  member_address: makeAddress(agent),
  period: '2592000s',
  period_spend_limit: coins(reward * 40),
  period_spent: coins(reward * 3),
  period_reset_at: '2026-01-01T00:00:00Z',
}));

/** Records of `ixo.claims.v1beta1.AgentDepositBalance`. */
export const DEPOSITS: readonly JsonObject[] = assignments.map(({ id, reward, agent }) => ({
  collection_id: id,
  agent_address: makeAddress(agent),
  amount: coins(reward),
  withdrawable_at: '2026-02-01T00:00:00Z',
}));
