import { expect, it } from 'vitest';
import { ClaimsConfig, CronSecret } from './index.js';

const secret = new CronSecret('a long secret');

it('CronSecret accepts the secret', () => {
  expect(() => secret.assert('Bearer a long secret')).not.toThrow();
});

it.each([undefined, '', 'Bearer', 'Bearer a long secre', 'Bearer a long secret ', 'a long secret'])(
  'CronSecret rejects %o',
  (authorization) => {
    expect(() => secret.assert(authorization)).toThrow(/CRON_SECRET/);
  },
);

it('ClaimsConfig requires a URL and a secret that is not short', () => {
  const { error } = ClaimsConfig.safeParse({ CLAIMS_URL: 'nowhere', CRON_SECRET: 'short' });
  expect(error?.issues.map(({ path }) => path[0])).toEqual(['CLAIMS_URL', 'CRON_SECRET']);
});
