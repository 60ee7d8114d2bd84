import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { a2a } from './index.js';
import { PushConfigStore } from './push-notifications.js';

describe.each(engines)('PushConfigStore.add on %s', (engine) => {
  const test = usePluginTables(engine, a2a);

  it('keeps 10 configs of a task and no more, also when many are added at once', async () => {
    const owner = newOwner();
    const stores = [new PushConfigStore(test.database), new PushConfigStore(await test.another())];
    const task = {
      task_id: 'task',
      session_id: 's',
      context_id: 'c',
      message_id: 'm',
      access: null,
    };
    const adding = Array.from({ length: 20 }, (_, i) =>
      stores[i % 2]?.add({ owner, ...task, id: `${i}`, url: 'https://example.com' }),
    );
    const outcomes = await Promise.allSettled(adding);
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(10);
    expect(await stores[0]?.list({ owner, taskId: 'task' })).toHaveLength(10);
  });
});
