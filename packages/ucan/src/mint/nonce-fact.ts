import { randomBytes } from 'node:crypto';
import type { IpldMap } from '../codec/ipld.js';

/** Makes two tokens that say the same two different tokens. */
export const nonceFact = (): IpldMap => ({ nonce: randomBytes(12).toString('base64url') });
