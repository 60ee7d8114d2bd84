import type { JsonObject } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';

const oracleDid = 'did:key:zOracle';

describe.each(engines)('RoomStore on %s', (engine) => {
  const test = useStore(engine);

  it('RoomStore.getRoom returns one room per user and oracle', async () => {
    const { rooms } = test.store;
    const owner = newOwner();
    const room = await rooms.getRoom({ owner, oracleDid });
    expect(await rooms.getRoom({ owner, oracleDid })).toBe(room);
    expect(await rooms.getRoom({ owner, oracleDid: 'did:key:zOther' })).not.toBe(room);
    expect(await rooms.getRoom({ owner: newOwner(), oracleDid })).not.toBe(room);
  });

  it('RoomStore.getRoom returns the same room for concurrent calls in two processes', async () => {
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

describe.each(engines)('RoomStateStore on %s', (engine) => {
  const test = useStore(engine);
  const rooms = () => test.store.roomState.of(oracleDid);

  it('has no state at first', async () => {
    expect(await rooms().read({ owner: newOwner() }, 'key')).toBeUndefined();
  });

  it('update applies a change to the current state', async () => {
    const key = { owner: newOwner(), roomId: 'room' };
    expect(await rooms().update(key, 'key', add({ a: 1 }))).toEqual({ a: 1 });
    expect(await rooms().update(key, 'key', add({ b: 2 }))).toEqual({ a: 1, b: 2 });
    expect(await rooms().read(key, 'key')).toEqual({ a: 1, b: 2 });
  });

  it("uses the user's room with the oracle by default", async () => {
    const owner = newOwner();
    const roomId = await test.store.rooms.getRoom({ owner, oracleDid });
    await rooms().update({ owner }, 'key', add({ a: 1 }));
    expect(await rooms().read({ owner, roomId }, 'key')).toEqual({ a: 1 });
    const other = test.store.roomState.of('did:key:zOther');
    expect(await other.read({ owner }, 'key')).toBeUndefined();
  });

  it('separates users, rooms and keys', async () => {
    const owner = newOwner();
    await rooms().update({ owner, roomId: 'room' }, 'key', add({ mine: true }));
    expect(await rooms().read({ owner: newOwner(), roomId: 'room' }, 'key')).toBeUndefined();
    expect(await rooms().read({ owner, roomId: 'other' }, 'key')).toBeUndefined();
    expect(await rooms().read({ owner, roomId: 'room' }, 'other')).toBeUndefined();
    await rooms().update({ owner, roomId: 'other' }, 'key', add({ room: 'other' }));
    await rooms().update({ owner, roomId: 'room' }, 'other', add({ key: 'other' }));
    expect(await rooms().read({ owner, roomId: 'room' }, 'key')).toEqual({ mine: true });
    expect(await rooms().read({ owner, roomId: 'other' }, 'key')).toEqual({ room: 'other' });
  });

  it('update loses none of 50 concurrent changes in two processes', async () => {
    const second = (await test.another()).roomState.of(oracleDid);
    const key = { owner: newOwner() };
    const fields = Array.from({ length: 50 }, (_, i) => `field${i}`);
    await Promise.all(
      fields.map((field, i) =>
        (i % 2 === 0 ? rooms() : second).update(key, 'key', add({ [field]: true })),
      ),
    );
    const kept = (await rooms().read(key, 'key')) ?? {};
    expect(Object.keys(kept).sort()).toEqual(fields.sort());
  });

  it('update does not change the state if the change throws', async () => {
    const key = { owner: newOwner() };
    await rooms().update(key, 'key', add({ a: 1 }));
    const failing = rooms().update(key, 'key', () => {
      throw new Error('refused');
    });
    await expect(failing).rejects.toThrow('refused');
    expect(await rooms().read(key, 'key')).toEqual({ a: 1 });
  });

  it('treats a field named __proto__ like any other', async () => {
    const key = { owner: newOwner() };
    const fields = JSON.parse('{"__proto__": {"isAdmin": true}}');
    await rooms().update(key, 'key', () => fields);
    const kept = await rooms().read(key, 'key');
    expect(kept?.isAdmin).toBeUndefined();
    expect(Object.hasOwn(kept ?? {}, '__proto__')).toBe(true);
  });
});
