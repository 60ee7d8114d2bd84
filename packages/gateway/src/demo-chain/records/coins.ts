/** An amount of the chain's own coin, in whole coins of a million parts. */
export const coins = (amount: number) => [
  { denom: 'uixo', amount: String(Math.round(amount * 1e6)) },
];

/** A percentage as the wire has decimals: a whole number of parts of 10^18. */
export const percent = (share: number): string => String(BigInt(share) * 10n ** 16n);
