import { describe, expect, it } from 'vitest';
import { engines, useStore } from '../../../test/support/test-database.js';

describe.each(engines)('ImportStore.filterFitting on %s', (engine) => {
  const test = useStore(engine);
  const MB = 1024 ** 2;

  it('leaves out messages that do not fit into their turn, also beside those that are stored', async () => {
    const owner = 'did:key:zImporter';
    const session = await test.store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    let seq = 0;
    const message = (turn: number, length: number) => ({
      ...{ session_id: session.id, turn, parts: null, type: 'human', parent: null },
      ...{ id: crypto.randomUUID(), seq: ++seq, content: 'x'.repeat(length), request_id: 'r' },
      ...{ is_complete: 1, created_at: 1 },
    });
    const first = [message(1, 6 * MB), message(1, 6 * MB), message(1, 6 * MB), message(2, 6 * MB)];
    const fitting = await test.store.imports.filterFitting(owner, first);
    expect(fitting).toEqual([first[0], first[1], first[3]]);
    expect(await test.store.imports.insert(owner, 'messages', fitting)).toBe(3);
    const later = [message(1, 6 * MB), message(2, 6 * MB), message(3, 6 * MB)];
    expect(await test.store.imports.filterFitting(owner, later)).toEqual(later.slice(1));
  });
});
