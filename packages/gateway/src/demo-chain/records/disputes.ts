import type { JsonObject } from '@bufbuild/protobuf';
import { PAST_CLAIMS } from './claims.js';
import { coins } from './coins.js';
import { addressOf, cidOf, didOf, entityDidOf } from './identifiers.js';

const document = (text: string) => ({
  uri: `ipfs:${cidOf(text)}`,
  type: 'application/pdf',
  proof: cidOf(text),
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
    disputer_address: addressOf('Grace Wanjiru'),
    disputer_did: didOf('Grace Wanjiru'),
    dispute_deposit: coins(360),
    submitted_at: '2024-04-02T08:00:00Z',
    status: 'DISPUTE_STATUS_OPEN',
  },
  {
    subject_id: mangroves?.id ?? '',
    type: 1,
    data: document('Seedlings counted twice where two flights overlap'),
    target_role: 'DISPUTE_TARGET_ROLE_EVALUATOR',
    disputer_address: addressOf('Hamisi Juma'),
    disputer_did: didOf('Hamisi Juma'),
    dispute_deposit: coins(120),
    submitted_at: '2024-04-20T10:30:00Z',
    status: 'DISPUTE_STATUS_AWARDED',
    resolution: {
      adjudicator_did: entityDidOf('Field verifier'),
      adjudicator_address: addressOf('Chipo Dube'),
      adjudicator_payout_address: addressOf('Chipo Dube'),
      resolved_at: '2024-05-06T15:45:00Z',
      data: document('The overlap is 3.2 hectares; the count was corrected'),
      intended_penalty: coins(60),
      actual_penalty_paid: coins(60),
      winner_amount: coins(54),
      adjudicator_amount: coins(6),
      winner_address: addressOf('Hamisi Juma'),
      loser_address: addressOf('Farida Hassan'),
    },
  },
];
