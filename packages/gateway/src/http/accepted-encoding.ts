import type { Encoding } from '../cache/reply.js';

const PREFERRED: readonly Encoding[] = ['br', 'gzip'];
const REFUSED = /^q=0(\.0*)?$/;

/** The best encoding a client takes, by its `Accept-Encoding`. */
export function acceptedEncoding(header: string | string[] | undefined): Encoding | undefined {
  if (typeof header !== 'string') return undefined;
  const accepted = new Set<string>();
  for (const item of header.toLowerCase().split(',')) {
    const [name = '', weight = ''] = item.split(';').map((part) => part.trim());
    if (!REFUSED.test(weight)) accepted.add(name);
  }
  return PREFERRED.find((encoding) => accepted.has(encoding));
}
