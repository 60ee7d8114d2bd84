import { expect, it } from 'vitest';
import { addressKey } from './address-key.js';

it.each([
  ['127.0.0.1', '127.0.0.1'],
  ['::ffff:10.0.0.9', '10.0.0.9'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::9', '2001:db8:1:2::/64'],
  ['::1', '0:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  [undefined, 'unknown'],
])('%s is limited as %s', (address, key) => {
  expect(addressKey(address)).toBe(key);
});
