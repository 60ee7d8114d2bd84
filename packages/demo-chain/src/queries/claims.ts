import type { JsonObject } from '@bufbuild/protobuf';
import {
  type ClaimRecord,
  COLLECTIONS,
  type CollectionRecord,
  coins,
  DEPOSITS,
  DISPUTES,
  describeCollection,
  INTENTS,
  LIVE_COLLECTION,
  liveClaimsAt,
  MEMBER_BUDGETS,
  PAST_CLAIMS,
  percent,
} from '../records/claims.js';
import { makeAddress, makeCid, makeDid, makeEntityDid } from '../records/identifiers.js';
import { type BlockContext, found, paginate, required, type ServiceHandlers } from './service.js';

const getProof = (dispute: JsonObject) => String((dispute.data as JsonObject).proof);

/** Records of one collection, by the address of their subject. */
const of = (collection: string, records: readonly JsonObject[], address: string) =>
  records
    .filter(({ collection_id }) => collection_id === collection)
    .map((record) => ({ key: String(record[address]), record }));

export const claimsHandlers: ServiceHandlers = {
  Params: () => ({
    params: {
      collection_sequence: String(COLLECTIONS.length + 1),
      ixo_account: makeAddress('ixo account'),
      network_fee_percentage: percent(10),
      node_fee_percentage: percent(10),
      intent_sequence: String(INTENTS.length + 1),
    },
  }),
  Collection(request, moment) {
    const id = required(request, 'id');
    const record = found(COLLECTIONS, (one) => one.id === id, `collection ${id}`);
    return { collection: writeCollection(record, claimsAt(moment)) };
  },
  CollectionList({ pagination: page }, moment) {
    const claims = claimsAt(moment);
    const stored = COLLECTIONS.map((one) => ({
      key: one.id,
      record: writeCollection(one, claims),
    }));
    const { records, pagination } = paginate(stored, page);
    return { collections: records, pagination };
  },
  Claim(request, moment) {
    const id = required(request, 'id');
    return { claim: writeClaim(found(claimsAt(moment), (one) => one.id === id, `claim ${id}`)) };
  },
  ClaimList({ pagination: page }, moment) {
    const stored = claimsAt(moment).map((one) => ({ key: one.id, record: writeClaim(one) }));
    const { records, pagination } = paginate(stored, page);
    return { claims: records, pagination };
  },
  Dispute(request) {
    const proof = required(request, 'proof');
    return { dispute: found(DISPUTES, (one) => getProof(one) === proof, `dispute ${proof}`) };
  },
  DisputeList({ pagination: page }) {
    const stored = DISPUTES.map((record) => ({ key: getProof(record), record }));
    const { records, pagination } = paginate(stored, page);
    return { disputes: records, pagination };
  },
  DisputeBySubject(request) {
    const subject = required(request, 'subjectId');
    const role = required(request, 'targetRole');
    const matches = (one: JsonObject) => one.subject_id === subject && one.target_role === role;
    return { dispute: found(DISPUTES, matches, `dispute about ${subject}`) };
  },
  DisputeListForSubject(request) {
    const subject = required(request, 'subjectId');
    return { disputes: DISPUTES.filter(({ subject_id }) => subject_id === subject) };
  },
  Intent(request) {
    const id = required(request, 'id');
    const agent = required(request, 'agentAddress');
    const stored = of(required(request, 'collectionId'), INTENTS, 'agent_address');
    const matches = ({ key, record }: (typeof stored)[number]) => key === agent && record.id === id;
    return { intent: found(stored, matches, `intent ${id}`).record };
  },
  IntentList({ pagination: page }) {
    const stored = INTENTS.map((record) => ({ key: String(record.id), record }));
    const { records, pagination } = paginate(stored, page);
    return { intents: records, pagination };
  },
  CollectionMember(request) {
    const member = required(request, 'memberAddress');
    const stored = of(required(request, 'collectionId'), MEMBER_BUDGETS, 'member_address');
    return { member_budget: found(stored, ({ key }) => key === member, `member ${member}`).record };
  },
  CollectionMemberList(request) {
    const stored = of(required(request, 'collectionId'), MEMBER_BUDGETS, 'member_address');
    const { records, pagination } = paginate(stored, request.pagination);
    return { member_budgets: records, pagination };
  },
  AgentDepositBalance(request) {
    const agent = required(request, 'agentAddress');
    const stored = of(required(request, 'collectionId'), DEPOSITS, 'agent_address');
    return { balance: found(stored, ({ key }) => key === agent, `deposit of ${agent}`).record };
  },
  AgentDepositBalanceList(request) {
    const stored = of(required(request, 'collectionId'), DEPOSITS, 'agent_address');
    const { records, pagination } = paginate(stored, request.pagination);
    return { balances: records, pagination };
  },
};

const rewards = new Map(COLLECTIONS.map(({ id, reward }) => [id, reward]));
const liveQuota = COLLECTIONS.find(({ id }) => id === LIVE_COLLECTION)?.quota ?? 0;

/** All claims at a block. */
export function claimsAt({ height, blocks }: BlockContext): ClaimRecord[] {
  return [...PAST_CLAIMS, ...liveClaimsAt(height, liveQuota, blocks.getTime)];
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
    agent_did: makeDid(claim.agent),
    agent_address: makeAddress(claim.agent),
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
    oracle: makeEntityDid(oracle),
    agent_did: makeDid(agent),
    agent_address: makeAddress(agent),
    status: verdict,
    reason: verdict === 'REJECTED' ? 2 : 0,
    verification_proof: makeCid(`evaluation of ${id}`),
    evaluation_date: evaluated.toISOString(),
  };
}
