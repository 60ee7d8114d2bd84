import type { Command } from '../command.js';
import { setVariable } from '../config/environment.js';

/** Runs the query gateway in this folder. */
export const gateway: Command = {
  name: 'gateway',
  summary: "Serve a blockchain's gRPC queries as HTTP/JSON",
  usage: ['[--port <number>]'],
  details:
    'Without GATEWAY_UPSTREAMS it serves a small built-in demo chain. Reads its configuration from the environment and from .env in this folder.',
  options: {
    port: {
      type: 'string',
      short: 'p',
      value: 'number',
      summary: 'Where to listen; GATEWAY_PORT or 3001 unless told',
    },
  },
  async run({ options }) {
    if (typeof options.port === 'string') setVariable('GATEWAY_PORT', options.port);
    // Forked by an oracle, it must not outlive it.
    process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'));
    process.channel?.unref();
    const { serve } = await import('@sibyl/gateway');
    return serve();
  },
};
