import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';

/** Tokens of as many users as there are tokens, each seen for the first time. */
export function mintTokens(count: number, audience: string): string[] {
  return Array.from({ length: count }, () => {
    const minted = mintAuthInvocation({ signer: generateSigner(), audience });
    if (minted.error) throw new Error(minted.error.detail);
    return minted.ok.token;
  });
}
