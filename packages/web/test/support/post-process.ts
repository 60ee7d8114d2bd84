// A host with a plugin that asks for a permission, and whose tool needs approval.
import { serve } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

const post = definePlugin({
  name: 'post',
  version: '1.0.0',
  manifest: {
    title: 'Post office',
    summary: 'Sends letters.',
    whenToUse: ['the user wants to send a letter'],
    category: 'test',
    visibility: 'always',
    permissions: [
      {
        can: 'letter/send',
        title: 'Send letters in your name',
        reason: 'It can’t read letters that you receive.',
      },
    ],
  },
  getTools: () => [
    defineTool({
      name: 'send_letter',
      description: 'Sends a letter.',
      inputSchema: z.object({ to: z.string(), copies: z.number() }),
      needsApproval: true,
      run: async ({ to, copies }, { ucan, user }) => {
        const audience = 'did:web:letters.example';
        await ucan.mintInvocation({ audience, can: 'letter/send', with: user.did });
        return `sent ${copies} to ${to}`;
      },
    }),
  ],
});

process.exitCode = await serve({ plugins: [post] });
