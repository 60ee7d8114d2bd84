import { defineTool } from '@sibyl/plugin-kit';
import { beforeEach } from 'vitest';
import { createKey } from './access-key.js';
import { type ControlledHost, useControlledHost } from './controlled-host.js';
import type { TestHostOptions } from './host.js';
import { testPlugin } from './plugin.js';

/** A host during the surrounding file, and an access key of its user, both new in each test. */
export interface SurfaceHost extends ControlledHost {
  readonly key: string;
}

/** A host whose tools add, ask the user for a city, and need an approval to pay. */
export function useSurfaceHost({ plugins = [], ...options }: TestHostOptions = {}): SurfaceHost {
  const host = useControlledHost({ ...options, plugins: [askingTools, ...plugins] });
  const shared = Object.assign(host, { key: '' });
  beforeEach(async () => {
    shared.key = (await createKey(host.alice)).key;
  });
  return shared;
}

export const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

const askingTools = testPlugin('questions', {
  getTools: () => [
    defineTool({
      name: 'add',
      description: 'Adds.',
      inputSchema: { type: 'object' },
      run: ({ a, b }) => ({ sum: Number(a) + Number(b) }),
    }),
    defineTool({
      name: 'ask_city',
      description: 'Asks for a city.',
      inputSchema: { type: 'object' },
      run: async (_, { interrupt }) => ({
        city: await interrupt({
          kind: 'input_required',
          schema: { type: 'object', properties: { city: { type: 'string' } } },
          data: { question: 'Which city?' },
        }),
      }),
    }),
    defineTool({
      name: 'pay',
      description: 'Pays.',
      inputSchema: { type: 'object' },
      needsApproval: true,
      run: () => 'paid',
    }),
  ],
});
