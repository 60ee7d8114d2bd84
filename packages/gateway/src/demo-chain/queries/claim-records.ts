import type { JsonObject } from '@bufbuild/protobuf';
import { type ClaimRecord, liveClaimsAt, PAST_CLAIMS } from '../records/claims.js';
import { coins } from '../records/coins.js';
import {
  COLLECTIONS,
  type CollectionRecord,
  describeCollection,
  LIVE_COLLECTION,
} from '../records/collections.js';
import { addressOf, cidOf, didOf, entityDidOf } from '../records/identifiers.js';
import type { Moment } from './answers.js';

const rewards = new Map(COLLECTIONS.map(({ id, reward }) => [id, reward]));
const liveQuota = COLLECTIONS.find(({ id }) => id === LIVE_COLLECTION)?.quota ?? 0;

/** All claims there are at a moment. */
export function claimsAt({ height, blocks }: Moment): ClaimRecord[] {
  return [...PAST_CLAIMS, ...liveClaimsAt(height, liveQuota, blocks.timeOf)];
}

/** A `ixo.claims.v1beta1.Collection` with its claims counted. */
export function writeCollection(
  record: CollectionRecord,
  claims: readonly ClaimRecord[],
): JsonObject {
  const own = claims.filter(({ collection }) => collection === record.id);
  const count = (...verdicts: readonly ClaimRecord['verdict'][]) =>
    String(own.filter(({ verdict }) => verdicts.includes(verdict)).length);
  return {
    ...describeCollection(record),
    count: String(own.length),
    evaluated: count('APPROVED', 'REJECTED', 'DISPUTED'),
    approved: count('APPROVED'),
    rejected: count('REJECTED'),
    disputed: count('DISPUTED'),
    disputes_open: count('DISPUTED'),
    ...(own.length >= record.quota && { state: 'CLOSED' }),
  };
}

/** A `ixo.claims.v1beta1.Claim`. */
export function writeClaim(claim: ClaimRecord): JsonObject {
  const evaluation = writeEvaluation(claim);
  return {
    collection_id: claim.collection,
    agent_did: didOf(claim.agent),
    agent_address: addressOf(claim.agent),
    submission_date: claim.submitted.toISOString(),
    claim_id: claim.id,
    ...(evaluation && { evaluation, evaluation_history: [evaluation] }),
    payments_status: {
      submission: 'NO_PAYMENT',
      evaluation: evaluation ? 'PAID' : 'NO_PAYMENT',
      approval: claim.verdict === 'APPROVED' ? 'PAID' : 'NO_PAYMENT',
      rejection: 'NO_PAYMENT',
    },
    amount: claim.verdict === 'APPROVED' ? coins(rewards.get(claim.collection) ?? 0) : [],
  };
}

function writeEvaluation({ id, collection, verdict, evaluated }: ClaimRecord) {
  if (!evaluated) return undefined;
  const oracle = collection === LIVE_COLLECTION ? 'Fuel verifier' : 'Field verifier';
  const agent = collection === LIVE_COLLECTION ? 'Hamisi Juma' : 'Chipo Dube';
  return {
    claim_id: id,
    collection_id: collection,
    oracle: entityDidOf(oracle),
    agent_did: didOf(agent),
    agent_address: addressOf(agent),
    status: verdict,
    reason: verdict === 'REJECTED' ? 2 : 0,
    verification_proof: cidOf(`evaluation of ${id}`),
    evaluation_date: evaluated.toISOString(),
  };
}
