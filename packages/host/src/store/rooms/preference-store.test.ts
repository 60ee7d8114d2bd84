import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';

describe.each(engines)('preferences on %s', (engine) => {
  const test = useStore(engine);

  it('has none at first', async () => {
    expect(await test.store.preferences.get({ owner: newOwner(), roomId: 'room' })).toBeUndefined();
  });

  it('merges changes, and null clears a field', async () => {
    const { preferences } = test.store;
    const key = { owner: newOwner(), roomId: 'room' };
    await preferences.merge({ ...key, changes: { tone: 'warm', length: 'concise' } });
    const changes = { tone: null, language: 'de', length: undefined };
    const merged = await preferences.merge({ ...key, changes });
    expect(merged.data).toEqual({ length: 'concise', language: 'de' });
    expect(await preferences.get(key)).toEqual(merged);
  });

  it('keeps users and rooms apart', async () => {
    const { preferences } = test.store;
    const key = { owner: newOwner(), roomId: 'room' };
    await preferences.merge({ ...key, changes: { tone: 'warm' } });
    const others = [
      { ...key, owner: newOwner() },
      { ...key, roomId: 'other' },
    ];
    for (const other of others) {
      expect(await preferences.get(other)).toBeUndefined();
      await preferences.merge({ ...other, changes: { tone: 'cold' } });
    }
    expect((await preferences.get(key))?.data).toEqual({ tone: 'warm' });
  });

  it('loses none of 50 changes made at once', async () => {
    const { preferences } = test.store;
    const key = { owner: newOwner(), roomId: 'room' };
    const fields = Array.from({ length: 50 }, (_, i) => `field${i}`);
    await Promise.all(
      fields.map((field) => preferences.merge({ ...key, changes: { [field]: true } })),
    );
    expect(Object.keys((await preferences.get(key))?.data ?? {}).sort()).toEqual(fields.sort());
  });

  it('treats a field named __proto__ as any other', async () => {
    const key = { owner: newOwner(), roomId: 'room' };
    const changes = JSON.parse('{"__proto__": {"isAdmin": true}}');
    const { data } = await test.store.preferences.merge({ ...key, changes });
    expect(data.isAdmin).toBeUndefined();
    expect(Object.hasOwn(data, '__proto__')).toBe(true);
  });
});
