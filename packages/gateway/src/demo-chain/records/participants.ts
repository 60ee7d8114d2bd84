import type { JsonObject } from '@bufbuild/protobuf';
import { coins } from './coins.js';
import { COLLECTIONS } from './collections.js';
import { addressOf, contractOf, didOf } from './identifiers.js';

const AGENTS = ['Achieng Odhiambo', 'Daniel Kiprono', 'Esther Nakato', 'Farida Hassan'];

/** Each collection and the person who works for it. */
const assignments = COLLECTIONS.map(({ id, reward }, i) => ({
  id,
  reward,
  agent: AGENTS[i] ?? 'Achieng Odhiambo',
}));

/** Records of `ixo.claims.v1beta1.Intent`: work that somebody means to do, with the money set aside. */
export const INTENTS: readonly JsonObject[] = assignments.map(({ id, reward, agent }, i) => ({
  id: String(i + 1),
  agent_did: didOf(agent),
  agent_address: addressOf(agent),
  collection_id: id,
  created_at: `2025-0${i + 1}-10T08:00:00Z`,
  expire_at: `2025-0${i + 1}-17T08:00:00Z`,
  status: i === 0 ? 'ACTIVE' : 'EXPIRED',
  amount: coins(reward),
  from_address: addressOf(`admin of ${id}`),
  escrow_address: contractOf(`escrow of ${id}`),
}));

/** Records of `ixo.claims.v1beta1.MemberBudget`. */
export const MEMBER_BUDGETS: readonly JsonObject[] = assignments.map(({ id, reward, agent }) => ({
  collection_id: id,
  member_address: addressOf(agent),
  period: '2592000s',
  period_spend_limit: coins(reward * 40),
  period_spent: coins(reward * 3),
  period_reset_at: '2026-01-01T00:00:00Z',
}));

/** Records of `ixo.claims.v1beta1.AgentDepositBalance`. */
export const DEPOSITS: readonly JsonObject[] = assignments.map(({ id, reward, agent }) => ({
  collection_id: id,
  agent_address: addressOf(agent),
  amount: coins(reward),
  withdrawable_at: '2026-02-01T00:00:00Z',
}));
