import type { JsonObject } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';

const oracleDid = 'did:key:zOracle';

describe.each(engines)('rooms on %s', (engine) => {
  const test = useStore(engine);

  it('gives each user one room with each oracle', async () => {
    const { rooms } = test.store;
    const owner = newOwner();
    const room = await rooms.getRoom({ owner, oracleDid });
    expect(await rooms.getRoom({ owner, oracleDid })).toBe(room);
    expect(await rooms.getRoom({ owner, oracleDid: 'did:key:zOther' })).not.toBe(room);
    expect(await rooms.getRoom({ owner: newOwner(), oracleDid })).not.toBe(room);
  });

  it('gives the same room to all who ask at once, in two processes', async () => {
    const second = await test.another();
    const owner = newOwner();
    const rooms = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        (i % 2 === 0 ? test.store : second).rooms.getRoom({ owner, oracleDid }),
      ),
    );
    expect(new Set(rooms).size).toBe(1);
  });
});

const add = (fields: JsonObject) => (current?: JsonObject) => ({ ...current, ...fields });

describe.each(engines)('the state of rooms on %s', (engine) => {
  const test = useStore(engine);
  const rooms = () => test.store.roomState.of(oracleDid);

  it('has none at first', async () => {
    expect(await rooms().read({ owner: newOwner() }, 'key')).toBeUndefined();
  });

  it('is what the change makes of what was there', async () => {
    const place = { owner: newOwner(), roomId: 'room' };
    expect(await rooms().update(place, 'key', add({ a: 1 }))).toEqual({ a: 1 });
    expect(await rooms().update(place, 'key', add({ b: 2 }))).toEqual({ a: 1, b: 2 });
    expect(await rooms().read(place, 'key')).toEqual({ a: 1, b: 2 });
  });

  it("is in the user's own room with the oracle unless told", async () => {
    const owner = newOwner();
    const roomId = await test.store.rooms.getRoom({ owner, oracleDid });
    await rooms().update({ owner }, 'key', add({ a: 1 }));
    expect(await rooms().read({ owner, roomId }, 'key')).toEqual({ a: 1 });
    const other = test.store.roomState.of('did:key:zOther');
    expect(await other.read({ owner }, 'key')).toBeUndefined();
  });

  it('keeps users, rooms and keys apart', async () => {
    const owner = newOwner();
    await rooms().update({ owner, roomId: 'room' }, 'key', add({ mine: true }));
    expect(await rooms().read({ owner: newOwner(), roomId: 'room' }, 'key')).toBeUndefined();
    expect(await rooms().read({ owner, roomId: 'other' }, 'key')).toBeUndefined();
    expect(await rooms().read({ owner, roomId: 'room' }, 'other')).toBeUndefined();
  });

  it('loses none of 50 changes made at once, in two processes', async () => {
    const second = (await test.another()).roomState.of(oracleDid);
    const place = { owner: newOwner() };
    const fields = Array.from({ length: 50 }, (_, i) => `field${i}`);
    await Promise.all(
      fields.map((field, i) =>
        (i % 2 === 0 ? rooms() : second).update(place, 'key', add({ [field]: true })),
      ),
    );
    const kept = (await rooms().read(place, 'key')) ?? {};
    expect(Object.keys(kept).sort()).toEqual(fields.sort());
  });

  it('stays as it was when the change fails', async () => {
    const place = { owner: newOwner() };
    await rooms().update(place, 'key', add({ a: 1 }));
    const failing = rooms().update(place, 'key', () => {
      throw new Error('refused');
    });
    await expect(failing).rejects.toThrow('refused');
    expect(await rooms().read(place, 'key')).toEqual({ a: 1 });
  });

  it('treats a field named __proto__ as any other', async () => {
    const place = { owner: newOwner() };
    const fields = JSON.parse('{"__proto__": {"isAdmin": true}}');
    await rooms().update(place, 'key', () => fields);
    const kept = await rooms().read(place, 'key');
    expect(kept?.isAdmin).toBeUndefined();
    expect(Object.hasOwn(kept ?? {}, '__proto__')).toBe(true);
  });
});
