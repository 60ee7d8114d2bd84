// A host with a plugin whose tools leave traces in a file.
import { appendFileSync } from 'node:fs';
import { serve } from '@sibyl/host';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

/** One line for each time a tool has acted. */
const trace = (line: string) => appendFileSync(process.env.TRACE_FILE ?? '', `${line}\n`);

const act = defineTool({
  name: 'act',
  description: 'Acts, which must happen only once.',
  inputSchema: z.object({ text: z.string() }),
  run: ({ text }) => {
    trace(text);
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

const journal = definePlugin({
  name: 'journal',
  version: '1.0.0',
  manifest: {
    title: 'Journal',
    summary: 'Acts.',
    whenToUse: ['in tests'],
    category: 'test',
    visibility: 'always',
  },
  getTools: () => [act, actAndHang],
});

process.exitCode = await serve({ plugins: [journal] });
