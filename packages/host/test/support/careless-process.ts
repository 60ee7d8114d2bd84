// A host with a plugin that causes unhandled rejections and uncaught exceptions.
import { serve } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

const careless = definePlugin({
  name: 'careless',
  version: '1.0.0',
  manifest: {
    title: 'Careless',
    summary: 'Causes unhandled errors.',
    whenToUse: ['in tests'],
    category: 'test',
    visibility: 'always',
  },
  getTools: () => [
    defineTool({
      name: 'leave_failure',
      description: 'Causes an unhandled rejection.',
      inputSchema: z.object({}),
      run: () => {
        void Promise.reject(new Error('left behind'));
        return 'done';
      },
    }),
  ],
  getSharedState: () => {
    process.on('SIGUSR2', () =>
      setInterval(() => {
        throw new Error('thrown in a timer');
      }, 20),
    );
    return {};
  },
});

process.exitCode = await serve({ plugins: [careless] });
