import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';

const oracleDid = 'did:key:zOracle';

describe.each(engines)('rooms on %s', (engine) => {
  const test = useStore(engine);

  it('gives each user one room with each oracle', async () => {
    const { rooms } = test.store;
    const owner = newOwner();
    const room = await rooms.roomOf({ owner, oracleDid });
    expect(await rooms.roomOf({ owner, oracleDid })).toBe(room);
    expect(await rooms.roomOf({ owner, oracleDid: 'did:key:zOther' })).not.toBe(room);
    expect(await rooms.roomOf({ owner: newOwner(), oracleDid })).not.toBe(room);
  });

  it('gives the same room to all who ask at once, in two processes', async () => {
    const second = await test.another();
    const owner = newOwner();
    const rooms = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        (i % 2 === 0 ? test.store : second).rooms.roomOf({ owner, oracleDid }),
      ),
    );
    expect(new Set(rooms).size).toBe(1);
  });
});
