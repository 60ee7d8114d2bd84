// A server with a plugin whose tool reports changed messages.
import { createOracleApp } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

const changes = definePlugin({
  name: 'changes',
  version: '1.0.0',
  manifest: {
    title: 'Changes',
    summary: 'Reports changed messages.',
    whenToUse: ['in tests'],
    category: 'test',
    visibility: 'silent',
  },
  getTools: () => [
    defineTool({
      name: 'change_messages',
      description: 'Reports changed messages.',
      inputSchema: z.object({}),
      run: (_, { emit }) => emit.messageCacheInvalidation({}),
    }),
    defineTool({
      name: 'approved_only',
      description: 'Needs approval.',
      inputSchema: z.object({}),
      needsApproval: true,
      run: () => 'ran',
    }),
  ],
});

const app = await createOracleApp({ plugins: [changes] });
process.once('SIGTERM', () => void app.close());
await app.listen();
