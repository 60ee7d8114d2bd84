// A host with a plugin whose tools ask their user.
import { serve } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

const restaurant = definePlugin({
  name: 'restaurant',
  version: '1.0.0',
  manifest: {
    title: 'Restaurant',
    summary: 'Books tables.',
    whenToUse: ['the user wants to eat out'],
    category: 'test',
    visibility: 'always',
  },
  getTools: () => [
    defineTool({
      name: 'book_table',
      description: 'Books a table.',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) => {
        const schema = z.object({ ok: z.boolean() });
        const { ok } = await interrupt({ kind: 'confirmation', schema, data: 'Book a table?' });
        return ok ? 'booked' : 'not booked';
      },
    }),
    defineTool({
      name: 'order_meal',
      description: 'Orders a meal.',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) => {
        const schema = z.object({
          dish: z.enum(['Soup', 'Salad']),
          people: z.number().min(1),
          note: z.string().optional(),
        });
        return interrupt({ kind: 'input_required', schema, data: 'What may it be?' });
      },
    }),
    defineTool({
      name: 'insure',
      description: 'Insures a trip.',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) =>
        interrupt({ kind: 'confirmation', schema: z.object({ isInsured: z.boolean() }), data: {} }),
    }),
    defineTool({
      name: 'log_in',
      description: 'Logs in.',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) => {
        const schema = z.object({
          user: z.string(),
          password: z.string().meta({ format: 'password' }),
          pin: z.number().meta({ writeOnly: true }),
          isTrusted: z.boolean().nullable(),
        });
        return interrupt({ kind: 'input_required', schema, data: 'Your account' });
      },
    }),
    defineTool({
      name: 'choose_rows',
      description: 'Chooses rows.',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) => {
        const schema = z.object({ rows: z.array(z.number().min(1)) });
        return interrupt({ kind: 'input_required', schema });
      },
    }),
    defineTool({
      name: 'plan_trip',
      description: 'Plans a trip.',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) => {
        const schema = z.object({
          isInsured: z.boolean().default(true),
          guide: z.string().nullable(),
          stops: z.array(z.string()),
          months: z.array(z.enum(['May', 'June', 'July'])),
        });
        return interrupt({ kind: 'input_required', schema });
      },
    }),
  ],
});

process.exitCode = await serve({ plugins: [restaurant] });
