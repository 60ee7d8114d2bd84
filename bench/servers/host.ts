// The host as operators run it, in its own process; the optional argument is the plugin to add: clock or pulse.
// It sends its memory usage on request.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { createOracleApp } from '@sibyl/host';
import { definePlugin, defineTool, type OraclePlugin } from '@sibyl/plugin-kit';
import { z } from 'zod';
import { sendPulse } from '../events/pulse.ts';

// As the program of the host does.
setFlagsFromString('--semi-space-growth-factor=1');
setFlagsFromString('--heap-growing-percent=100');
setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const manifest = { category: 'bench', whenToUse: ['always'] };

const clock = definePlugin({
  name: 'clock',
  version: '1.0.0',
  manifest: { ...manifest, title: 'Clock', summary: 'Returns the time', visibility: 'always' },
  getTools: () => [
    defineTool({
      name: 'clock',
      description: 'Returns the time in a place',
      inputSchema: z.object({ place: z.string() }),
      run: (input) => ({ ...input, time: '12:00' }),
    }),
  ],
});

const pulse = definePlugin({
  name: 'pulse',
  version: '1.0.0',
  manifest: { ...manifest, title: 'Pulse', summary: 'Sends events', visibility: 'silent' },
  getTools: () => [
    defineTool({
      name: 'pulse',
      description: 'Sends events at a steady rate',
      inputSchema: z.object({ count: z.number(), gapMs: z.number() }),
      timeoutMs: 10 * 60_000,
      run: (input, { emit }) => sendPulse(input, (step) => emit.router({ from: 'pulse', step })),
    }),
  ],
});

const plugins: Readonly<Record<string, OraclePlugin>> = { clock, pulse };
const added = plugins[process.argv[2] ?? ''];
const app = await createOracleApp({ plugins: added ? [added] : [] });
process.on('message', (when) => {
  if (when === 'after-collection') collectGarbage();
  process.send?.({ memory: process.memoryUsage() });
});
process.send?.({ url: await app.listen(), did: app.did });
