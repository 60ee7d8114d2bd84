/**
 * Scales tests that repeat an expensive step (kills, fuzzing, floods): `npm test` uses the reduced count, which finds
 * regressions; `npm run test:full` uses the full one.
 */
export const scale = (full: number, reduced: number): number =>
  process.env.SIBYL_TEST_FULL ? full : reduced;
