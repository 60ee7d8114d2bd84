import type { Result } from '@sibyl/protocol';
import type { Block } from '../codec/archive.js';
import type { Link } from '../codec/link.js';
import type { UcanFault } from '../fault.js';
import { readToken } from '../gate/read-token.js';
import type { Ucan } from '../gate/token.js';
import { blockOf } from './issue.js';

export interface Proofs {
  /** The outermost UCAN of each token. */
  readonly roots: readonly Ucan[];
  readonly links: readonly Link[];
  /** All UCANs of all tokens, each once. */
  readonly blocks: readonly Block[];
}

/** Opens tokens that a new one is to rest on. */
export function readProofs(tokens: readonly string[]): Result<Proofs, UcanFault> {
  const roots: Ucan[] = [];
  const links: Link[] = [];
  const blocks = new Map<string, Block>();
  for (const text of tokens) {
    const token = readToken(text);
    if (token.error) return token;
    for (const ucan of token.ok.ucans.values()) blocks.set(ucan.cid, blockOf(ucan.bytes));
    roots.push(token.ok.root);
    links.push(blockOf(token.ok.root.bytes).link);
  }
  return { ok: { roots, links, blocks: [...blocks.values()] } };
}
