import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { HostLiveness } from '../../bus/host-bus.js';
import { DisconnectedTurns } from './active-run.js';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** A host that loses and regains its database as a test says. */
function createHost() {
  const onLost: (() => void)[] = [];
  const onRegained: (() => void)[] = [];
  let lastSeen = performance.now();
  const liveness: HostLiveness = {
    hostId: 'here',
    isAlive: true,
    get lastSeen() {
      return lastSeen;
    },
    hostCount: 1,
    isRunning: () => true,
    findDeadHosts: async () => [],
    onHostLost: () => () => {},
    onLost: (listener) => {
      onLost.push(listener);
      return () => {};
    },
    onRegained: (listener) => {
      onRegained.push(listener);
      return () => {};
    },
  };
  const stopAll = vi.fn();
  const turns = new DisconnectedTurns(liveness, stopAll);
  return {
    turns,
    stopAll,
    /** The database answers for the last time now. */
    answer: () => {
      lastSeen = performance.now();
    },
    lose: () => {
      for (const listener of onLost) listener();
    },
    regain: () => {
      for (const listener of onRegained) listener();
    },
  };
}

describe('DisconnectedTurns', () => {
  it('stops the turns 10 s after the database last answered, not after its loss was noticed', () => {
    const { turns, stopAll, answer, lose } = createHost();
    vi.advanceTimersByTime(60_000);
    answer();
    vi.advanceTimersByTime(4_000);
    lose();
    vi.advanceTimersByTime(5_999);
    expect([turns.areStopped, stopAll.mock.calls.length]).toEqual([false, 0]);
    vi.advanceTimersByTime(1);
    expect([turns.areStopped, stopAll.mock.calls.length]).toEqual([true, 1]);
  });

  it('lets the turns continue if the database returns in time', () => {
    const { turns, stopAll, answer, lose, regain } = createHost();
    lose();
    vi.advanceTimersByTime(9_999);
    answer();
    regain();
    vi.advanceTimersByTime(60_000);
    expect([turns.areStopped, stopAll.mock.calls.length]).toEqual([false, 0]);
  });

  it('says that the turns are stopped only until the database returns', () => {
    const { turns, stopAll, answer, lose, regain } = createHost();
    lose();
    vi.advanceTimersByTime(10_000);
    expect(turns.areStopped).toBe(true);
    answer();
    regain();
    expect(turns.areStopped).toBe(false);
    lose();
    vi.advanceTimersByTime(10_000);
    expect(turns.areStopped).toBe(true);
    expect(stopAll).toHaveBeenCalledTimes(2);
  });

  it('stops the turns once if the loss is reported twice', () => {
    const { stopAll, lose } = createHost();
    lose();
    vi.advanceTimersByTime(5_000);
    lose();
    vi.advanceTimersByTime(60_000);
    expect(stopAll).toHaveBeenCalledTimes(1);
  });

  it('does nothing while the database is there', () => {
    const { turns, stopAll } = createHost();
    vi.advanceTimersByTime(60_000);
    expect([turns.areStopped, stopAll.mock.calls.length]).toEqual([false, 0]);
  });
});
