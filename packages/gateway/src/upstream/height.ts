/** The header and the metadata name by which a block is asked for and told. */
export const HEIGHT_METADATA = 'x-cosmos-block-height';

/** Reads a block height: a whole number, as far as JavaScript counts exactly. */
export function parseHeight(text: unknown): number | undefined {
  return typeof text === 'string' && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
