import type { JsonObject } from '@bufbuild/protobuf';
import { paginate } from '../paginate.js';
import { percent } from '../records/coins.js';
import { COLLECTIONS } from '../records/collections.js';
import { DISPUTES } from '../records/disputes.js';
import { addressOf } from '../records/identifiers.js';
import { DEPOSITS, INTENTS, MEMBER_BUDGETS } from '../records/participants.js';
import { found, required, type ServiceAnswers } from './answers.js';
import { claimsAt, writeClaim, writeCollection } from './claim-records.js';

const proofOf = (dispute: JsonObject) => String((dispute.data as JsonObject).proof);

/** Records of one collection, each under the address of whom it is about. */
const of = (collection: string, records: readonly JsonObject[], address: string) =>
  records
    .filter(({ collection_id }) => collection_id === collection)
    .map((record) => ({ key: String(record[address]), record }));

export const claimsAnswers: ServiceAnswers = {
  Params: () => ({
    params: {
      collection_sequence: String(COLLECTIONS.length + 1),
      ixo_account: addressOf('ixo account'),
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
    return { dispute: found(DISPUTES, (one) => proofOf(one) === proof, `dispute ${proof}`) };
  },
  DisputeList({ pagination: page }) {
    const stored = DISPUTES.map((record) => ({ key: proofOf(record), record }));
    const { records, pagination } = paginate(stored, page);
    return { disputes: records, pagination };
  },
  DisputeBySubject(request) {
    const subject = required(request, 'subjectId');
    const role = required(request, 'targetRole');
    const isIt = (one: JsonObject) => one.subject_id === subject && one.target_role === role;
    return { dispute: found(DISPUTES, isIt, `dispute about ${subject}`) };
  },
  DisputeListForSubject(request) {
    const subject = required(request, 'subjectId');
    return { disputes: DISPUTES.filter(({ subject_id }) => subject_id === subject) };
  },
  Intent(request) {
    const id = required(request, 'id');
    const agent = required(request, 'agentAddress');
    const stored = of(required(request, 'collectionId'), INTENTS, 'agent_address');
    const isIt = ({ key, record }: (typeof stored)[number]) => key === agent && record.id === id;
    return { intent: found(stored, isIt, `intent ${id}`).record };
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
