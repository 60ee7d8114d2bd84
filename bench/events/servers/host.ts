// The host as it is served, in a process of its own, with a tool that tells events at a steady pace.
import { createOracleApp } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';
import { beat } from '../pulse.ts';

const pulse = definePlugin({
  name: 'pulse',
  version: '1.0.0',
  manifest: {
    title: 'Pulse',
    summary: 'Tells events',
    whenToUse: ['asked for events'],
    category: 'bench',
    visibility: 'silent',
  },
  getTools: () => [
    defineTool({
      name: 'pulse',
      description: 'Tells events at a steady pace',
      inputSchema: z.object({ count: z.number(), gapMs: z.number() }),
      timeoutMs: 10 * 60_000,
      run: (input, { emit }) => beat(input, (step) => emit.router({ from: 'pulse', step })),
    }),
  ],
});

const app = await createOracleApp({ plugins: [pulse] });
process.send?.({ url: await app.listen(), did: app.did });
