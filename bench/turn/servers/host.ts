// The host as it is served, in a process of its own, with a trivial tool if asked for one.
import { createOracleApp } from '@sibyl/host';
import { definePlugin } from '@sibyl/plugin-kit';
import { z } from 'zod';

const plugins = [
  definePlugin({
    name: 'clock',
    version: '1.0.0',
    manifest: {
      title: 'Clock',
      summary: 'Tells the time',
      whenToUse: ['asked for the time'],
      category: 'bench',
      visibility: 'always',
    },
    getTools: () => [
      {
        name: 'clock',
        description: 'Tells the time in a place',
        inputSchema: z.object({ place: z.string() }),
        run: (input) => ({ ...(input as { place: string }), time: '12:00' }),
      },
    ],
  }),
];

const app = await createOracleApp({ plugins: process.argv[2] === 'with-tool' ? plugins : [] });
process.send?.({ url: await app.listen(), did: app.did });
