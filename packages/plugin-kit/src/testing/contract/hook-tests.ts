import assert from 'node:assert/strict';
import { OracleError } from '@sibyl/protocol';
import { hostileTurns } from './hostile-input.js';
import { inTime } from './in-time.js';
import type { ContractTest, Trial } from './trial.js';
import { readVariablesOf } from './watched-environment.js';

const ODD_REQUESTS = [
  { system: '', messages: [], tools: [] },
  { agent: 'somebody', messages: [{ role: 'user' as const, content: [] }] },
  { messages: [{ role: 'tool' as const, results: [] }] },
];

/** How a plugin's hooks stand up to what comes. */
export const hookTests = ({ plugin, use }: Trial): ContractTest[] => [
  {
    name: 'is set up, and closes',
    run: () =>
      inTime(
        'being set up',
        use(async () => undefined),
      ),
  },
  {
    name: 'is set up twice in one process, each for itself',
    run: () => use(() => use(async () => undefined)),
  },
  {
    name: 'takes its variables from its context, never from the process',
    run: async () => {
      const names = Object.keys(plugin.configSchema?.shape ?? {});
      const read = await readVariablesOf(names, () =>
        use(async (runtime) => void (await runtime.turn())),
      );
      assert.deepEqual(read, []);
    },
  },
  {
    name: 'begins a turn whatever comes with the message',
    run: () =>
      use(async (runtime) => {
        for (const parts of hostileTurns) await inTime('a turn', runtime.turn(parts));
      }),
  },
  {
    name: 'lets models be asked whatever the conversation, or refuses in words',
    run: () =>
      use(async (runtime) => {
        const turn = await runtime.turn();
        for (const request of ODD_REQUESTS)
          await inTime('beforeModel', turn.beforeModel(request)).catch(assertRefusal);
        await inTime('afterModel', turn.afterModel()).catch(assertRefusal);
        assert.deepEqual(turn.faults, []);
      }),
  },
  {
    name: 'answers a message at its gate, or refuses in words',
    run: () =>
      use(async (runtime) => {
        const holds = await inTime('the gate', runtime.admit()).catch(assertRefusal);
        for (const hold of holds ?? []) await inTime('settle', hold.settle([]));
      }),
  },
];

function assertRefusal(error: unknown): undefined {
  if (!(error instanceof OracleError)) throw error;
  return undefined;
}
