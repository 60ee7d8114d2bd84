import { expect, test } from 'vitest';
import { mintDelegation } from '../src/mint/mint.js';
import { delegateWithUcanto, toArchive } from './support/ucanto-tokens.js';
import { alice, NOW, oracle, verifierWith } from './support/verifier.js';

// Made once by @ucanto/core 10.4.6 from the seeds in test-support, valid until NOW + 300.
const CID = 'bafyreidc7tx2vsuukroo4sqq7j7mnh6jajm2y2tmjr7bko2sjsrtegomai';
const TOKEN =
  'OqJlcm9vdHOB2CpYJQABcRIg83vj135kdcwiK47W7dBEGVE2A41FT0pbVcwvHS8SgZdndmVyc2lvbgHvAQFxEiBi/O+qypRUXO5KEPp+xp/JAlmsamxMfhU7UkyjMhnMAqdhc1hE7aEDQL0A5DBSY5WiZVNZJDt3xUKsbZYl6oB77NiL8fjjkdKOcHDcXvHxwvTmXXpCQaSBh+F7HbRYWp1hl55j/2mOZgJhdmUwLjkuMWNhdHSBomNjYW5hKmR3aXRoaml4bzpvcmFjbGVjYXVkWCLtAc3Ytw2zxl74oQZWI6UwHbEHNXmcKioNgtGwNcsQ0QsmY2V4cBprSdMsY2lzc1gi7QGEsMJibQm6Yk9NNudiTNZPHuRgnOzcABRYSKpZ2CHsw2NwcmaAWQFxEiDze+PXfmR1zCIrjtbt0EQZUTYDjUVPSltVzC8dLxKBl6FqdWNhbkAwLjkuMdgqWCUAAXESIGL876rKlFRc7koQ+n7Gn8kCWaxqbEx+FTtSTKMyGcwC';

test('a token of the past is read as it was', async () => {
  expect(await verifierWith().verifyInvocation(TOKEN)).toEqual({
    ok: {
      did: alice.did,
      cid: CID,
      audience: oracle.did,
      issuers: [alice.did],
      cids: [CID],
      expiration: NOW + 300,
    },
  });
});

test('and is still what we and ucanto write', async () => {
  const fields = {
    audience: oracle.did,
    capabilities: [{ can: '*', with: 'ixo:oracle' }],
    expiration: NOW + 300,
  };
  const theirs = await delegateWithUcanto(alice, fields);
  expect(await toArchive(theirs)).toBe(TOKEN);
  expect(mintDelegation({ signer: alice, ...fields })).toMatchObject({
    ok: { cid: CID, token: TOKEN },
  });
});
