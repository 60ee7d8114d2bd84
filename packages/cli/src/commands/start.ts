import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Command } from '../command.js';
import { loadDotEnv, setVariable, variable } from '../config/environment.js';

/** Runs the host in this folder. */
export const start: Command = {
  name: 'start',
  summary: 'Run an oracle with the bundled plugins',
  usage: ['[--port <number>] [--with-gateway]'],
  details:
    'Reads its configuration from the environment and from .env in this folder. Ctrl-C stops it, letting turns under way finish.',
  options: {
    port: {
      type: 'string',
      short: 'p',
      value: 'number',
      summary: 'Where to listen; PORT or 3000 unless told',
    },
    'with-gateway': {
      type: 'boolean',
      summary: 'Run the query gateway beside it, and let the agent use it',
    },
  },
  async run({ options }) {
    loadDotEnv();
    if (typeof options.port === 'string') setVariable('PORT', options.port);
    const stop = options['with-gateway'] ? startGateway() : () => undefined;
    const { serve } = await import('@sibyl/host');
    try {
      return await serve();
    } finally {
      stop();
    }
  },
};

/** A process of its own, which ends with this one. */
function startGateway(): () => void {
  const port = variable('GATEWAY_PORT') ?? '3001';
  if (!variable('GATEWAY_URL')) setVariable('GATEWAY_URL', `http://127.0.0.1:${port}`);
  const child = fork(fileURLToPath(new URL('../main.js', import.meta.url)), ['gateway']);
  return () => void child.kill('SIGTERM');
}
