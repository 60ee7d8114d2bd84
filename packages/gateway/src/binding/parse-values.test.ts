import { describe, expect, it } from 'vitest';
import { parseBase64 } from './parse-values.js';

describe('parseBase64', () => {
  it.each(['+/+/', '-_-_', ' / /', '+/+/====', '-/ _'])('reads %j tolerantly', (text) => {
    expect(parseBase64(text, 'tolerant')).toEqual(Buffer.from('+/+/', 'base64'));
  });

  it.each(['A', 'AAAAA', 'A!==', 'A=A=', 'é'])('refuses %j', (text) => {
    expect(() => parseBase64(text, 'tolerant')).toThrow('is not base64');
    expect(() => parseBase64(text, 'node')).toThrow('is not base64');
  });

  it.each(['AA', 'AAA', 'AA=', 'AAAA====', '==', ' / /'])('refuses %j as a node does', (text) => {
    expect(() => parseBase64(text, 'node')).toThrow('is not base64');
  });

  it('parseBase64 takes linear time for every text', () => {
    const texts = (length: number) => [
      `${'='.repeat(length)}a`,
      ' '.repeat(length),
      `${'A'.repeat(length)}!`,
    ];
    const cost = (length: number) => {
      const startedAt = process.cpuUsage();
      for (const text of texts(length)) {
        try {
          parseBase64(text, 'tolerant');
        } catch {}
      }
      const { user, system } = process.cpuUsage(startedAt);
      return user + system;
    };
    const best = (length: number) => Math.min(...Array.from({ length: 5 }, () => cost(length)));
    // Sixteen times the length; in proportion to its square it would be 256 times the cost.
    expect(best(640_000)).toBeLessThan(100 * Math.max(best(40_000), 200));
  });
});
