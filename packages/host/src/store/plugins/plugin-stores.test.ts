import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';

const oracleDid = 'did:key:zOracle';
const plugin = 'notes';

describe.each(engines)('the state of sessions on %s', (engine) => {
  const test = useStore(engine);

  async function placeOf(owner = newOwner()) {
    const { id: sessionId } = await test.store.sessions.create({ owner, oracleDid });
    return { owner, sessionId, plugin };
  }

  it('keeps what JSON can hold, and forgets what is set to nothing', async () => {
    const state = test.store.sessionState.of(await placeOf());
    expect(await state.get('key')).toBeUndefined();
    for (const value of [{ a: [1, null, 'x\u0000'] }, false, 0, null]) {
      await state.set('key', value);
      expect(await state.get('key')).toEqual(value);
    }
    await state.set('key', undefined);
    expect(await state.get('key')).toBeUndefined();
  });

  it('is known to no other user, session, plugin or key', async () => {
    const place = await placeOf();
    const { sessionState } = test.store;
    await sessionState.of(place).set('key', 1);
    const elsewhere = [
      { ...place, owner: newOwner() },
      { ...place, plugin: 'other' },
      await placeOf(place.owner),
    ];
    for (const other of elsewhere) {
      expect(await sessionState.of(other).get('key')).toBeUndefined();
      await sessionState.of(other).set('key', undefined);
    }
    expect(await sessionState.of(place).get('other')).toBeUndefined();
    expect(await sessionState.of(place).get('key')).toBe(1);
  });

  it('cannot be set for a session of somebody else', async () => {
    const place = await placeOf();
    const theirs = test.store.sessionState.of({ ...place, owner: newOwner() });
    await expect(theirs.set('key', 1)).rejects.toMatchObject({ code: 'session_not_found' });
  });

  it('goes with its session', async () => {
    const place = await placeOf();
    const state = test.store.sessionState.of(place);
    await state.set('key', 1);
    await test.store.sessions.delete(place);
    expect(await state.get('key')).toBeUndefined();
    await expect(state.set('key', 2)).rejects.toMatchObject({ code: 'session_not_found' });
  });

  it('refuses what is too long, or no JSON', async () => {
    const state = test.store.sessionState.of(await placeOf());
    await expect(async () => state.set('key', 'x'.repeat(1_100_000))).rejects.toThrow(
      /keep it in a blob/,
    );
    await expect(async () => state.set('key', () => 1)).rejects.toThrow(/JSON/);
  });
});

describe.each(engines)('secrets on %s', (engine) => {
  const test = useStore(engine);

  it('gives back what was set, until it is removed', async () => {
    const secrets = test.store.secrets.of({ owner: newOwner(), plugin });
    expect(await secrets.get('token')).toBeUndefined();
    await secrets.set('token', 'first');
    await secrets.set('token', 'second');
    expect(await secrets.get('token')).toBe('second');
    await secrets.set('token', undefined);
    expect(await secrets.get('token')).toBeUndefined();
  });

  it('is known to no other user or plugin', async () => {
    const owner = newOwner();
    await test.store.secrets.of({ owner, plugin }).set('token', 'mine');
    for (const other of [
      { owner: newOwner(), plugin },
      { owner, plugin: 'other' },
    ]) {
      const theirs = test.store.secrets.of(other);
      expect(await theirs.get('token')).toBeUndefined();
      await theirs.set('token', undefined);
    }
    expect(await test.store.secrets.of({ owner, plugin }).get('token')).toBe('mine');
  });

  it('does not open under another key', async () => {
    const place = { owner: newOwner(), plugin };
    await test.store.secrets.of(place).set('token', 'mine');
    const stranger = await test.another({ secretKey: new Uint8Array(32).fill(8) });
    await expect(stranger.secrets.of(place).get('token')).rejects.toThrow(/token cannot be read/);
  });
});

describe.each(engines)('blobs on %s', (engine) => {
  const test = useStore(engine);
  const data = new Uint8Array([0, 1, 254, 255]);
  const mediaType = 'application/octet-stream';

  it('gives back the same bytes, until they are deleted', async () => {
    const blobs = test.store.blobs.of({ owner: newOwner(), plugin });
    const id = await blobs.put({ mediaType, data });
    expect(await blobs.get(id)).toEqual({ mediaType, data });
    await blobs.delete(id);
    expect(await blobs.get(id)).toBeUndefined();
  });

  it('is known to no other user or plugin', async () => {
    const owner = newOwner();
    const id = await test.store.blobs.of({ owner, plugin }).put({ mediaType, data });
    for (const other of [
      { owner: newOwner(), plugin },
      { owner, plugin: 'other' },
    ]) {
      const theirs = test.store.blobs.of(other);
      expect(await theirs.get(id)).toBeUndefined();
      await theirs.delete(id);
    }
    expect(await test.store.blobs.of({ owner, plugin }).get(id)).toBeDefined();
  });

  it('has limits, for one and for all together', async () => {
    const blobs = test.store.blobs.of({ owner: newOwner(), plugin });
    const large = new Uint8Array(25 * 1024 * 1024);
    const tooLarge = blobs.put({ mediaType, data: new Uint8Array(large.length + 1) });
    await expect(tooLarge).rejects.toThrow(/at most 25 MB/);
    for (let i = 0; i < 8; i++) await blobs.put({ mediaType, data: large });
    await expect(blobs.put({ mediaType, data })).rejects.toThrow(/200 MB of files/);
  });
});
