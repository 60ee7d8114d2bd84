/** A line in the table of all benchmarks. */
export interface Figure {
  /** What was measured, and in what unit. */
  readonly name: string;
  readonly ours: string;
  /** What ran beside it, and what it came to there. */
  readonly beside?: string;
  readonly ratio?: number;
  readonly target?: Target | undefined;
}

interface Target {
  readonly isMet: boolean;
  readonly says: string;
}

export const atLeast = (least: number, ratio: number, wanted = ''): Target => ({
  isMet: ratio >= least,
  says: `≥ ${least}${wanted}`,
});

export const atMost = (most: number, ratio: number, unit = ''): Target => ({
  isMet: ratio <= most,
  says: `≤ ${most}${unit}`,
});

export const verdict = ({ isMet, says }: Target): string => `${isMet ? 'met' : 'MISSED'}: ${says}`;

/** Hands the figures to whoever runs all benchmarks, if anybody does. */
export async function tell(figures: readonly Figure[]): Promise<void> {
  if (!process.send) return;
  await new Promise((resolve) => process.send?.({ figures }, resolve));
}
