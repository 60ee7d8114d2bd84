/**
 * Scales tests that repeat an expensive step (kills, fuzzing, floods): `npm test` uses the reduced count, which finds
 * regressions; `npm run test:full` uses the full one.
 */
export const scale = (full: number, reduced: number): number =>
  process.env.SIBYL_TEST_FULL ? full : reduced;

/** As `scale`, for variants of one test, such as the sizes of a window: `npm test` runs those with these names. */
export const select = <Row extends readonly [string, ...unknown[]]>(
  rows: readonly Row[],
  ...names: readonly Row[0][]
): readonly Row[] =>
  process.env.SIBYL_TEST_FULL ? rows : rows.filter(([name]) => names.includes(name));
