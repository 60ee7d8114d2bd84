import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';

describe.each(engines)('RulesStore on %s', (engine) => {
  const test = useStore(engine);

  const createRules = (owner: string, cid: string) => ({
    owner,
    cid,
    token: `token of ${cid}`,
    rules: [{ match: 'send_*', effect: 'ask' as const }],
    expiresAt: null,
  });

  it('RulesStore.find returns the last rules of one user', async () => {
    const { rules } = test.store;
    const [owner, other] = [newOwner(), newOwner()];
    const name = (kind: string) => `${kind}-${owner}`;
    await rules.put(createRules(owner, name('first')));
    await rules.put(createRules(other, name('other')));
    expect(await rules.find(owner)).toMatchObject({ cid: name('first') });
    expect(await rules.put(createRules(owner, name('second')))).toMatchObject({
      state: 'stored',
      previous: name('first'),
    });
    expect(await rules.find(owner)).toMatchObject({
      cid: name('second'),
      rules: [{ match: 'send_*', effect: 'ask' }],
    });
    expect(await rules.find(other)).toMatchObject({ cid: name('other') });
    expect(await rules.find(newOwner())).toBeUndefined();
  });

  it('RulesStore.put accepts the current token again, but not one that was replaced', async () => {
    const { rules } = test.store;
    const owner = newOwner();
    const [first, second] = [createRules(owner, `1-${owner}`), createRules(owner, `2-${owner}`)];
    expect(await rules.put(first)).toMatchObject({ state: 'stored', previous: '' });
    expect(await rules.put(first)).toMatchObject({ state: 'stored', previous: first.cid });
    await rules.put(second);
    expect(await rules.put(first)).toEqual({ state: 'replayed' });
    expect(await rules.find(owner)).toMatchObject({ cid: second.cid });
  });

  it('RulesStore.delete deletes the rules of one user', async () => {
    const { rules } = test.store;
    const [owner, other] = [newOwner(), newOwner()];
    for (const each of [other, owner]) await rules.put(createRules(each, `of-${each}`));
    expect(await rules.delete(owner)).toBe(`of-${owner}`);
    expect(await rules.delete(owner)).toBeUndefined();
    expect(await rules.find(owner)).toBeUndefined();
    expect(await rules.find(other)).toMatchObject({ cid: `of-${other}` });
  });

  it('RulesStore.cids returns those of the given users', async () => {
    const { rules } = test.store;
    const [first, second, third] = [newOwner(), newOwner(), newOwner()];
    for (const owner of [first, second, third]) await rules.put(createRules(owner, `of-${owner}`));
    const cids = await rules.cids([first, third, newOwner()]);
    expect(new Map(cids)).toEqual(
      new Map([
        [first, `of-${first}`],
        [third, `of-${third}`],
      ]),
    );
    expect((await rules.cids([])).size).toBe(0);
  });
});
