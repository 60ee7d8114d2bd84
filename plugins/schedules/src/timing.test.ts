import { describe, expect, it, vi } from 'vitest';
import { assertTrigger, computeBackoff, decideDue, findFirstDue, findNextDue } from './timing.js';

const cron = (pattern: string, timezone = 'Europe/Berlin') =>
  ({ type: 'cron', cron: pattern, timezone }) as const;
const once = (at: string) => ({ type: 'once', at }) as const;
const at = (time: string) => Date.parse(time);

/** The next due times after a time. */
function listDue(trigger: ReturnType<typeof cron>, after: string, count: number): string[] {
  const times: string[] = [];
  for (let time = at(after); times.length < count; ) {
    time = findNextDue(trigger, time) ?? Number.NaN;
    times.push(new Date(time).toISOString());
  }
  return times;
}

describe('findNextDue', () => {
  it('uses the local time of the zone', () => {
    expect(listDue(cron('0 8 * * MON-FRI', 'Africa/Nairobi'), '2027-01-01T00:00:00Z', 2)).toEqual([
      '2027-01-01T05:00:00.000Z',
      '2027-01-04T05:00:00.000Z',
    ]);
  });

  it('runs at the end of the gap if clocks skip the time in spring', () => {
    expect(listDue(cron('30 2 * * *'), '2027-03-27T12:00:00Z', 2)).toEqual([
      '2027-03-28T01:00:00.000Z',
      '2027-03-29T00:30:00.000Z',
    ]);
  });

  it('runs once if clocks show the time twice in autumn', () => {
    expect(listDue(cron('30 2 * * *'), '2027-10-30T12:00:00Z', 2)).toEqual([
      '2027-10-31T00:30:00.000Z',
      '2027-11-01T01:30:00.000Z',
    ]);
  });

  it('keeps intervals through the hour that clocks show twice', () => {
    expect(listDue(cron('*/30 * * * *'), '2027-10-30T23:45:00Z', 4)).toEqual([
      '2027-10-31T00:00:00.000Z',
      '2027-10-31T00:30:00.000Z',
      '2027-10-31T01:00:00.000Z',
      '2027-10-31T01:30:00.000Z',
    ]);
  });

  it('finds a leap day years ahead', () => {
    expect(listDue(cron('0 0 29 2 *', 'UTC'), '2028-03-01T00:00:00Z', 1)).toEqual([
      '2032-02-29T00:00:00.000Z',
    ]);
  });

  it('has one due time for `once` and none for a webhook', () => {
    const time = '2027-05-01T10:00:00+02:00';
    expect(findNextDue(once(time), at(time) - 1)).toBe(at(time));
    expect(findNextDue(once(time), at(time))).toBeNull();
    expect(findNextDue({ type: 'webhook' }, 0)).toBeNull();
  });
});

it('findFirstDue takes a time that has just passed, but not an old one', () => {
  const time = '2027-05-01T10:00:00Z';
  expect(findFirstDue(once(time), at(time) + 5_000)).toBe(at(time));
  expect(findFirstDue(once(time), at(time) + 120_000)).toBeNull();
});

describe('assertTrigger', () => {
  const now = at('2027-01-01T00:00:00Z');
  const limits = { now, minIntervalSeconds: 60 };

  it.each([
    ['61 * * * *', /cron: .*minute: 61/],
    ['every day', /cron: /],
    ['* * * *', /required\. Use five fields/],
    ['0 0 30 2 *', /no such time comes within 10 years/],
    ['0 0 31 4,6,9,11 *', /no such time/],
    ['0 0 31 2,4,6,9,11 +MON#5', /no such time/],
    ['0 0 29 2 +1', /no such time/],
    ['0,30 0 0 29 2 *', /more often than every 60 seconds/],
    ['* * * * * *', /more often than every 60 seconds/],
    ['0,30 0 8 * * *', /more often than every 60 seconds/],
    ['2030-01-23T00:00:00', /a date is not a pattern/],
    ['0 0 0 1 1 * 2030', /cron: /],
  ])('refuses the pattern %s', (pattern, message) => {
    expect(() => assertTrigger(cron(pattern), limits)).toThrow(message);
  });

  it.each(['* * * * *', '0 8 * * 1-5', '@daily', '0 0 L * *', '0 0 8 * * *'])(
    'accepts the pattern %s',
    (pattern) => assertTrigger(cron(pattern), limits),
  );

  it.each(['0 0 31 2,4,6,9,11 +MON#5', '0 0 29 2 +1'])(
    'looks for the times of %s only in the years that count',
    (pattern) => {
      const computed = vi.spyOn(Date, 'UTC');
      try {
        assertTrigger(cron(pattern), limits);
      } catch (error) {
        expect(String(error)).toContain('no such time');
      }
      const days = computed.mock.calls.length;
      computed.mockRestore();
      expect(days).toBeLessThan(10_000);
    },
  );

  it.each(['@yearly', '0 0 1 1 *', '0 0 29 2 *', '59 23 31 12 *'])(
    'accepts %s at the turn of a year, in every time zone',
    (pattern) => {
      for (const zone of ['Pacific/Kiritimati', 'UTC', 'Pacific/Pago_Pago'])
        for (const time of ['2026-12-31T11:00:00Z', '2027-01-01T10:00:00Z'])
          assertTrigger(cron(pattern, zone), { ...limits, now: at(time) });
    },
  );

  it('accepts seconds if the operator does', () => {
    assertTrigger(cron('* * * * * *'), { now, minIntervalSeconds: 1 });
  });

  it.each([
    ['2026-12-31T23:58:00Z', /in the future/],
    ['2037-06-01T00:00:00Z', /within 10 years/],
  ])('refuses the time %s', (time, message) => {
    expect(() => assertTrigger(once(time), limits)).toThrow(message);
  });
});

describe('decideDue', () => {
  const hourly = { trigger: cron('0 * * * *', 'UTC'), catchUp: 'once' } as const;
  const nextDueAt = at('2027-01-01T08:00:00Z');

  it('runs a time that has just passed', () => {
    expect(decideDue({ ...hourly, nextDueAt }, nextDueAt + 400)).toEqual({
      dueAt: nextDueAt,
      cause: 'time',
      isSkipped: false,
      next: at('2027-01-01T09:00:00Z'),
    });
  });

  it.each(['once', 'skip'] as const)('makes at most one run of all missed times: %s', (catchUp) => {
    const now = at('2027-01-02T10:30:00Z');
    expect(decideDue({ ...hourly, catchUp, nextDueAt }, now)).toEqual({
      dueAt: at('2027-01-02T10:00:00Z'),
      cause: 'catch-up',
      isSkipped: catchUp === 'skip',
      next: at('2027-01-02T11:00:00Z'),
    });
  });

  it('runs the current time, and nothing else, if it comes at the end of an outage', () => {
    const now = at('2027-01-02T10:00:10Z');
    expect(decideDue({ ...hourly, nextDueAt }, now)).toMatchObject({
      dueAt: at('2027-01-02T10:00:00Z'),
      cause: 'time',
    });
  });

  it('decides at the exact second', () => {
    const now = at('2027-01-02T10:00:00Z');
    expect(decideDue({ ...hourly, nextDueAt }, now)).toMatchObject({
      dueAt: now,
      next: at('2027-01-02T11:00:00Z'),
    });
  });

  it('ends after the only time of `once`', () => {
    const time = '2027-01-01T08:00:00Z';
    const missed = { trigger: once(time), catchUp: 'once', nextDueAt: at(time) } as const;
    expect(decideDue(missed, at('2027-01-05T00:00:00Z'))).toEqual({
      dueAt: at(time),
      cause: 'catch-up',
      isSkipped: false,
      next: null,
    });
  });
});

it('computeBackoff doubles up to six hours', () => {
  expect([1, 2, 3, 20].map(computeBackoff)).toEqual([30_000, 60_000, 120_000, 21_600_000]);
});
