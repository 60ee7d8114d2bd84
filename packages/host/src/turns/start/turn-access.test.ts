import { OracleError } from '@sibyl/protocol';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { createActiveRun } from '../../../test/support/test-active-run.js';
import type { Caller } from '../../auth/caller.js';
import type { Exclusion } from '../../auth/caller-allow-list.js';
import type { Run } from '../../store/runs/run.js';
import type { TurnRequest } from '../turn-request.js';
import { TurnAccess } from './turn-access.js';

const ALICE: Caller = {
  did: 'did:key:zAlice',
  expiration: Number.POSITIVE_INFINITY,
  presentedDelegation: undefined,
  loginCids: ['login'],
};

/** Access that a test takes away. */
function open() {
  const revoked = new Set<string>();
  const excluded = new Map<string, Exclusion>();
  const cidWatches: { readonly cids: readonly string[]; readonly listener: () => void }[] = [];
  const didWatches: {
    readonly did: string;
    readonly onRemoved: (exclusion: Exclusion) => void;
  }[] = [];
  const add = <T>(list: T[], watch: T) => {
    list.push(watch);
    return () => void list.splice(list.indexOf(watch), 1);
  };
  const taken: string[] = [];
  const access = new TurnAccess({
    authority: {
      onRevoked: (cids, listener) => add(cidWatches, { cids, listener }),
      hasRevoked: async (cids) => cids.some((cid) => revoked.has(cid)),
    },
    allowList: {
      watch: (did, onRemoved) => add(didWatches, { did, onRemoved }),
      findExclusion: async (did) => excluded.get(did),
    },
    accessKeys: {
      takeTurn: async ({ did }) => void taken.push(`taken by ${did}`),
      returnTurn: async ({ did }) => void taken.push(`returned by ${did}`),
    },
  });
  const revoke = (revokedCid: string) => {
    revoked.add(revokedCid);
    for (const { cids, listener } of [...cidWatches]) if (cids.includes(revokedCid)) listener();
  };
  const exclude = (excludedDid: string, exclusion: Exclusion) => {
    excluded.set(excludedDid, exclusion);
    for (const { did, onRemoved } of [...didWatches]) if (did === excludedDid) onRemoved(exclusion);
  };
  return { access, revoke, exclude, cidWatches, didWatches, taken };
}

function buildRequest(caveats?: {
  readonly session?: string;
  readonly model?: string;
}): TurnRequest {
  return {
    caller: caveats ? { ...ALICE, accessKey: { cid: 'key', caveats } } : ALICE,
    sessionId: 's1',
    requestId: 'r1',
    message: { message: 'hi', model: 'small', multitask: 'enqueue' },
    user: {},
    client: 'api',
  };
}

const createLive = () => createActiveRun({ runId: 'run', owner: ALICE.did } as Run);

describe('TurnAccess.admit', () => {
  it.each([
    ['for everything', {}],
    ['for its session and model', { session: 's1', model: 'small' }],
  ])('counts a turn with a key %s', async (_, caveats) => {
    const { access, taken } = open();
    await access.admit(buildRequest(caveats));
    expect(taken).toEqual([`taken by ${ALICE.did}`]);
  });

  it('counts no turn without an access key', async () => {
    const { access, taken } = open();
    await access.admit(buildRequest(undefined));
    expect(taken).toEqual([]);
  });

  it.each([
    ['another session', { session: 's2' }],
    ['another model', { model: 'large' }],
    ['its session, but another model', { session: 's1', model: 'large' }],
    ['its model, but another session', { session: 's2', model: 'small' }],
  ])('refuses a key for %s, and counts nothing', async (_, caveats) => {
    const { access, taken } = open();
    const admitted = access.admit(buildRequest(caveats));
    await expect(admitted).rejects.toMatchObject({ code: 'access_key_too_narrow' });
    expect(taken).toEqual([]);
  });

  it('refuses the default model for a key that names one', async () => {
    const { access } = open();
    const { message, ...request } = buildRequest({ model: 'small' });
    const admitted = access.admit({ ...request, message: { ...message, model: undefined } });
    await expect(admitted).rejects.toMatchObject({ code: 'access_key_too_narrow' });
  });

  it('release returns the turn to the key', async () => {
    const { access, taken } = open();
    await access.release(buildRequest({}));
    expect(taken).toEqual([`returned by ${ALICE.did}`]);
  });
});

describe('TurnAccess.assertKept', () => {
  it('accepts a caller who has lost nothing', async () => {
    const { access, revoke, exclude } = open();
    revoke('other');
    exclude('did:key:zBob', 'caller_blocked');
    await access.assertKept(ALICE);
    await access.assertKept({ did: ALICE.did });
  });

  it.each(['caller_blocked', 'caller_not_allowed'] as const)('refuses with %s', async (code) => {
    const { access, exclude } = open();
    exclude(ALICE.did, code);
    await expect(access.assertKept(ALICE)).rejects.toMatchObject({ code });
  });

  it('refuses a caller whose login was revoked', async () => {
    const { access, revoke } = open();
    revoke('login');
    await expect(access.assertKept(ALICE)).rejects.toMatchObject({ code: 'access_revoked' });
  });
});

describe('TurnAccess.watch', () => {
  function watch(caller = ALICE) {
    const opened = open();
    const turn = new AbortController();
    const ended: string[] = [];
    opened.access.watch(caller, turn, ({ code }) => ended.push(code));
    return { ...opened, turn, ended };
  }

  it('reports that the login was revoked, or the caller excluded', () => {
    const { revoke, exclude, ended } = watch();
    revoke('other');
    exclude('did:key:zBob', 'caller_blocked');
    expect(ended).toEqual([]);
    revoke('login');
    exclude(ALICE.did, 'caller_not_allowed');
    expect(ended).toEqual(['access_revoked', 'caller_not_allowed']);
  });

  it('watches no UCANs of a login without any', () => {
    const { loginCids: _, ...caller } = ALICE;
    expect(watch(caller).cidWatches).toMatchObject([{ cids: [] }]);
  });

  it('stops when the turn has ended', () => {
    const { turn, revoke, exclude, ended, cidWatches, didWatches } = watch();
    turn.abort();
    revoke('login');
    exclude(ALICE.did, 'caller_blocked');
    expect([ended, cidWatches, didWatches]).toEqual([[], [], []]);
  });
});

describe('TurnAccess.limit', () => {
  afterEach(() => void vi.useRealTimers());

  function limit() {
    vi.useFakeTimers();
    const opened = open();
    const request = new AbortController();
    const signal = opened.access.limit(ALICE, request.signal);
    return { ...opened, request, signal };
  }

  it('ends a reader who lost access, once it could receive the end of its turn', () => {
    const { signal, revoke, cidWatches, didWatches } = limit();
    revoke('login');
    vi.advanceTimersByTime(799);
    expect(signal.aborted).toBe(false);
    vi.advanceTimersByTime(1);
    expect(signal.reason).toBeInstanceOf(OracleError);
    expect(signal.reason).toMatchObject({ code: 'access_revoked' });
    expect([cidWatches, didWatches]).toEqual([[], []]);
  });

  it('ends with the request, and then waits for nothing', () => {
    const { signal, request, revoke, cidWatches, didWatches } = limit();
    revoke('login');
    request.abort(new Error('gone'));
    expect(signal.reason).toMatchObject({ message: 'gone' });
    expect(vi.getTimerCount()).toBe(0);
    expect([cidWatches, didWatches]).toEqual([[], []]);
  });

  it('watches nothing for a request that has ended', () => {
    const { access, cidWatches, didWatches } = open();
    expect(access.limit(ALICE, AbortSignal.abort()).aborted).toBe(true);
    expect([cidWatches, didWatches]).toEqual([[], []]);
  });
});

describe('TurnAccess.watchUses', () => {
  it('aborts the turn when a UCAN that it used is revoked', () => {
    const { access, revoke } = open();
    const live = createLive();
    const used = access.watchUses(live);
    used(['a']);
    used(['a', 'b']);
    revoke('c');
    expect(live.signal.aborted).toBe(false);
    revoke('b');
    expect(live.cancelReason).toBe('aborted');
    expect(live.error).toMatchObject({ code: 'access_revoked' });
  });

  it('watches each UCAN once, until the turn has ended', () => {
    const { access, cidWatches } = open();
    const live = createLive();
    const used = access.watchUses(live);
    for (const cids of [['a'], ['a'], ['b', 'a'], [], ['b']]) used(cids);
    expect(cidWatches.map(({ cids }) => cids)).toEqual([['a'], ['b']]);
    live.cancel('aborted');
    expect(cidWatches).toEqual([]);
  });

  it('watches the UCANs of each turn by themselves', () => {
    const { access, cidWatches } = open();
    for (const live of [createLive(), createLive()]) access.watchUses(live)(['a']);
    expect(cidWatches).toHaveLength(2);
  });
});
