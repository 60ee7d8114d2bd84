import { expect, it } from 'vitest';
import { CronSecret } from './claims-api.js';
import { ClaimsConfig } from './index.js';

const secret = new CronSecret('a long secret');

it('lets in whoever knows it', () => {
  expect(() => secret.assert('Bearer a long secret')).not.toThrow();
});

it.each([undefined, '', 'Bearer', 'Bearer a long secre', 'Bearer a long secret ', 'a long secret'])(
  'refuses %o',
  (authorization) => {
    expect(() => secret.assert(authorization)).toThrow(/CRON_SECRET/);
  },
);

it('must not be short, and the service must have an address', () => {
  const { error } = ClaimsConfig.safeParse({ CLAIMS_URL: 'nowhere', CRON_SECRET: 'short' });
  expect(error?.issues.map(({ path }) => path[0])).toEqual(['CLAIMS_URL', 'CRON_SECRET']);
});
