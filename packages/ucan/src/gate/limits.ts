/** What the gate lets through; every later step relies on these bounds. */
export const LIMITS = {
  characters: 8192,
  blocks: 10,
  ucans: 8,
  depth: 4,
  proofs: 2,
  capabilities: 16,
} as const;
