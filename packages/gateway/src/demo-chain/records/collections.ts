import { coins, percent } from './coins.js';
import { addressOf, contractOf, entityDidOf } from './identifiers.js';
import { PROJECTS } from './profiles.js';

/** A collection of claims, apart from what is counted in it. */
export interface CollectionRecord {
  readonly id: string;
  readonly entity: string;
  readonly quota: number;
  readonly terms: { readonly start_date: string; readonly end_date: string };
  readonly state: 'OPEN' | 'PAUSED' | 'CLOSED';
  /** What an approved claim is paid, in whole coins. */
  readonly reward: number;
  readonly protocol: string;
}

const record = (
  id: string,
  project: string,
  rest: Omit<CollectionRecord, 'id' | 'entity'>,
): CollectionRecord => ({ id, entity: entityDidOf(project), ...rest });

/** The collection that gets new claims as blocks go by. */
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
  const payer = addressOf(`admin of ${id}`);
  return {
    id,
    entity,
    admin: payer,
    protocol: entityDidOf(protocol),
    ...terms,
    quota: String(quota),
    state,
    payments: {
      submission: payment(payer, 0),
      evaluation: { ...payment(payer, reward / 10), is_oracle_payment: true },
      approval: payment(payer, reward),
      rejection: payment(payer, 0),
    },
    signer: addressOf(`signer of ${id}`),
    escrow_account: contractOf(`escrow of ${id}`),
    intents: 'ALLOW',
    service_agent_deposit_required: coins(reward),
    evaluator_deposit_required: coins(reward),
    dispute_deposit_amount: coins(reward * 2),
    penalty_amount_per_dispute: coins(reward),
    min_deposit_period: '604800s',
    adjudicators: [{ did: entityDidOf('Field verifier'), reward_percentage: percent(10) }],
  };
}

const payment = (account: string, amount: number) => ({
  account,
  amount: amount > 0 ? coins(amount) : [],
  timeout_ns: '0s',
});
