import type { Command } from '../command.js';
import { loadDotEnv, setVariable } from '../config/environment.js';

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
    loadDotEnv();
    if (typeof options.port === 'string') setVariable('GATEWAY_PORT', options.port);
    const { serve } = await import('@sibyl/gateway');
    return serve();
  },
};
