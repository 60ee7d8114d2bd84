import { describe, expect, it } from 'vitest';
import { NotificationReader, toNotifications } from './postgres-host-bus.js';

const toTexts = (payloads: readonly unknown[]) =>
  payloads.map((payload) => JSON.stringify(['topic', payload]));

function readAll(notifications: readonly string[]) {
  const reader = new NotificationReader();
  return notifications.flatMap((payload) => reader.read(payload) ?? []);
}

describe('toNotifications', () => {
  it('sends small messages as one notification', () => {
    const payloads = [{ a: 1 }, 'text', null, [1, 2]];
    const notifications = toNotifications('ab12', toTexts(payloads));
    expect(notifications).toHaveLength(1);
    expect(readAll(notifications)).toEqual([
      { from: 'ab12', messages: payloads.map((payload) => ['topic', payload]) },
    ]);
  });

  it.each([
    ['ASCII', 'x'.repeat(40_000)],
    ['two bytes', `a${'é'.repeat(20_000)}`],
    ['surrogate pairs', `ab${'😀'.repeat(10_000)}`],
    ['NUL, quotes and lone surrogates', '\u0000"\\\ud800\n'.repeat(5_000)],
  ])('divides a long text into payloads that PostgreSQL accepts: %s', (_, text) => {
    const notifications = toNotifications('ab12', toTexts([text, 'short']));
    expect(notifications.length).toBeGreaterThan(4);
    for (const each of notifications) {
      expect(Buffer.byteLength(each)).toBeLessThan(8_000);
      expect(each.isWellFormed()).toBe(true);
    }
    const [batch, ...more] = readAll(notifications);
    expect(more).toEqual([]);
    expect(batch?.messages.map(([, payload]) => payload)).toEqual([text, 'short']);
  });
});

describe('NotificationReader', () => {
  const long = toNotifications('aa', toTexts(['x'.repeat(20_000)]));
  const short = toNotifications('bb', toTexts(['short']));

  it('ignores a batch whose beginning is missing', () => {
    expect(readAll([...long.slice(1), ...short])).toMatchObject([{ from: 'bb' }]);
  });

  it('ignores a batch whose middle or end is missing', () => {
    expect(readAll([long[0] ?? '', ...long.slice(2), ...short])).toMatchObject([{ from: 'bb' }]);
    expect(readAll([...long.slice(0, -1), ...short, ...long])).toMatchObject([
      { from: 'bb' },
      { from: 'aa' },
    ]);
  });

  it('does not join batches before and after reset', () => {
    const reader = new NotificationReader();
    reader.read(long[0] ?? '');
    reader.reset();
    expect(long.slice(1).map((each) => reader.read(each))).toEqual([undefined, undefined]);
  });

  it.each(['', 'hello', 'aa 1/1 {', 'aa 1/1', '{"a":1}'])('rejects %j', (payload) => {
    expect(() => new NotificationReader().read(payload)).toThrow(SyntaxError);
  });
});
