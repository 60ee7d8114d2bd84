import { LIVE_COLLECTION } from './collections.js';
import { cidOf } from './identifiers.js';

/** A claim: somebody did something, and somebody else has looked into it or has yet to. */
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
    id: cidOf(`${collection} ${agent} ${submitted}`),
    collection,
    agent,
    submitted: new Date(submitted),
    ...(verdict !== 'PENDING' && {
      evaluated: new Date(Date.parse(submitted) + EVALUATED_AFTER_MS),
    }),
    verdict,
  }),
);

/** The claims of the live collection: one every so many blocks, looked into some blocks later. */
const BLOCKS_PER_CLAIM = 30;
const BLOCKS_UNTIL_EVALUATION = 45;
const ONE_IN_THIS_MANY_IS_REJECTED = 8;
const COOKS = ['Achieng Odhiambo', 'Baraka Mwangi', 'Esther Nakato'] as const;

/** The claims that have come in by a block, at most as many as the collection takes. */
export function liveClaimsAt(height: number, most: number, timeOf: (height: number) => Date) {
  const count = Math.min(most, Math.floor(height / BLOCKS_PER_CLAIM));
  return Array.from({ length: count }, (_, i): ClaimRecord => {
    const submittedIn = (i + 1) * BLOCKS_PER_CLAIM;
    const evaluatedIn = submittedIn + BLOCKS_UNTIL_EVALUATION;
    const claim = {
      id: cidOf(`cooking claim ${i}`),
      collection: LIVE_COLLECTION,
      agent: COOKS[i % COOKS.length] as string,
      submitted: timeOf(submittedIn),
    };
    if (evaluatedIn > height) return { ...claim, verdict: 'PENDING' };
    const isRejected = i % ONE_IN_THIS_MANY_IS_REJECTED === 5;
    const verdict = isRejected ? 'REJECTED' : 'APPROVED';
    return { ...claim, evaluated: timeOf(evaluatedIn), verdict };
  });
}
