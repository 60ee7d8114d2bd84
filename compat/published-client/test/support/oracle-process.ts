// A host with a plugin whose tool says that messages have changed.
import { createOracleApp } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

const changes = definePlugin({
  name: 'changes',
  version: '1.0.0',
  manifest: {
    title: 'Changes',
    summary: 'Says that messages have changed.',
    whenToUse: ['in tests'],
    category: 'test',
    visibility: 'silent',
  },
  getTools: () => [
    defineTool({
      name: 'change_messages',
      description: 'Says that messages have changed.',
      inputSchema: z.object({}),
      run: (_, { emit }) => emit.messageCacheInvalidation({}),
    }),
  ],
});

const app = await createOracleApp({ plugins: [changes] });
process.once('SIGTERM', () => void app.close());
await app.listen();
