import { randomUUID } from 'node:crypto';
import { mintDelegation } from '@sibyl/ucan';
import type { TestUser } from './user.js';

interface KeyChoice {
  readonly audience?: string;
  readonly can?: string;
  /** Caveats. */
  readonly nb?: Readonly<Record<string, string | number | readonly string[]>>;
  readonly expiration?: number | null;
  readonly proofs?: readonly string[];
}

export const inSeconds = (seconds: number) => Math.floor(Date.now() / 1000) + seconds;

/** Signs an access key without registering it. */
export function mintKey(user: TestUser, choice: KeyChoice = {}): string {
  const { audience = user.host.did, can = 'oracle/chat', expiration = inSeconds(3600) } = choice;
  const { nb, proofs = [] } = choice;
  const minted = mintDelegation({
    signer: user.signer,
    audience,
    capabilities: [{ can, with: 'ixo:oracle', ...(nb && { nb }) }],
    expiration,
    nonce: randomUUID(),
    proofs,
  });
  if (!minted.ok) throw new Error(minted.error.detail);
  return minted.ok.token;
}

export const registerKey = (user: TestUser, token: string, name = 'laptop') =>
  user.request('POST', '/keys', { body: { token, name } });

/** A registered access key. */
export async function createKey(user: TestUser, nb?: KeyChoice['nb']) {
  const key = mintKey(user, nb && { nb });
  const { status, body } = await registerKey(user, key);
  if (status !== 200) throw new Error(`POST /keys answered ${status}: ${JSON.stringify(body)}`);
  return { key, id: body.id as string };
}

export type { KeyChoice };
