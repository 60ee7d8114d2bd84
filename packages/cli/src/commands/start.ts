import { type Command, fail } from '../command.js';
import { loadHost, setVariable } from '../environment.js';
import { startGateway } from './gateway.js';

/** Runs the host in this folder. */
export const start: Command = {
  name: 'start',
  summary: 'Run an oracle with the bundled plugins',
  usage: ['[--port <number>] [--with-gateway]'],
  details:
    'Reads its configuration from the environment and from .env in this folder. Ctrl-C stops it, after the running turns finish.',
  options: {
    port: {
      type: 'string',
      short: 'p',
      value: 'number',
      summary: 'Port to listen on; default: PORT or 3000',
    },
    'with-gateway': {
      type: 'boolean',
      summary: 'Run the query gateway beside it, and let the agent use it',
    },
  },
  async run({ options }) {
    if (typeof options.port === 'string') setVariable('PORT', options.port);
    const gateway = options['with-gateway'] ? await startGateway() : undefined;
    const { serve } = await loadHost();
    try {
      return await serve({}, fail);
    } finally {
      await gateway?.stop();
    }
  },
};
