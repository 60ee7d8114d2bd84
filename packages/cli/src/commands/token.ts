import type { Command } from '../command.js';
import { openOracle } from '../open-oracle.js';

/** Signs a bearer token. */
export const token: Command = {
  name: 'token',
  summary: 'Print a bearer token for curl',
  usage: ['[url]'],
  details: [
    'Signed by your key for the oracle at that address, valid for five minutes. Use it so:',
    '  curl -H "Authorization: Bearer $(sibyl token)" -H "X-Auth-Type: ucan" http://127.0.0.1:3000/sessions',
  ].join('\n'),
  async run({ args: [url], output }) {
    const { signer, did } = await openOracle(url, output);
    const now = Math.floor(Date.now() / 1000);
    const minted = await signer.invoke({ audience: did, now });
    output.result({ ...minted, issuer: signer.did, audience: did }, minted.token);
    return 0;
  },
};
