// A host with a plugin whose tools leave traces in a file and ask questions.
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { serve } from '@sibyl/host';
import { definePlugin, defineRoute, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

/** One line for each time a tool has acted. */
const trace = (line: string) => appendFileSync(process.env.TRACE_FILE ?? '', `${line}\n`);

const act = defineTool({
  name: 'act',
  description: 'Acts, which must happen only once.',
  inputSchema: z.object({ text: z.string() }),
  run: async ({ text }) => {
    trace(text);
    if (text.includes('hang')) await new Promise(() => undefined);
    return { acted: text };
  },
});

const actAndHang = defineTool({
  name: 'act_and_hang',
  description: 'Acts and never returns.',
  inputSchema: z.object({ text: z.string() }),
  timeoutMs: 600_000,
  run: async ({ text }) => {
    trace(text);
    await new Promise(() => undefined);
  },
});

const actIfConfirmed = defineTool({
  name: 'act_if_confirmed',
  description: 'Asks the user, then acts.',
  inputSchema: z.object({ text: z.string(), expiresInSeconds: z.number().optional() }),
  run: async ({ text, expiresInSeconds }, { interrupt }) => {
    const { approved } = await interrupt({
      kind: 'confirmation',
      schema: z.object({ approved: z.boolean() }),
      data: { text },
      expiresInSeconds,
    });
    if (approved) trace(text);
    return { approved };
  },
});

const actIfApproved = defineTool({
  ...act,
  name: 'act_if_approved',
  needsApproval: true,
});

const journal = definePlugin({
  name: 'journal',
  version: '1.0.0',
  manifest: {
    title: 'Journal',
    summary: 'Acts and asks.',
    whenToUse: ['in tests'],
    category: 'test',
    visibility: 'always',
  },
  // Attempts wait here while the file exists.
  getRequestTools: async () => {
    while (existsSync(process.env.HOLD_FILE ?? '')) await sleep(20);
    return [];
  },
  getTools: () => [act, actAndHang, actIfConfirmed, actIfApproved],
  routes: ({ turns }) => [
    defineRoute({
      method: 'POST',
      path: '/journal/answers/:interruptId',
      summary: 'Answers a question of a tool.',
      body: z.object({ value: z.unknown() }),
      handler: ({ caller, params: { interruptId }, body: { value } }) =>
        turns.answer({ owner: caller.did, id: interruptId, value }),
    }),
  ],
});

process.exitCode = await serve({ plugins: [journal] });
