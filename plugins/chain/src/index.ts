import { definePlugin, sharedKey } from '@sibyl/plugin-kit';
import { ChainConfig, Gateway } from './gateway.js';
import { listChainTools } from './tools.js';

const GATEWAY = sharedKey<string>('gateway');

/** Lets the agent look things up on a chain, through a protocol query gateway. */
export const chain = definePlugin({
  name: 'chain',
  version: '0.1.0',
  manifest: {
    title: 'Chain',
    summary:
      'Looks up entities, claims, tokens, identities and anything else a blockchain can be asked.',
    whenToUse: [
      'the user asks about an entity, a claim, a token, a DID, an account or a block of the chain',
      'an answer depends on what is recorded on the chain now or at an earlier block',
    ],
    whenNotToUse: ['something is to be written, sent or signed: this only reads'],
    examples: [
      'Is the project did:ixo:entity:… verified?',
      'Which claims of collection 2 are still pending?',
      'How many KISUMU credits were retired?',
    ],
    tags: ['blockchain', 'ixo', 'impact'],
    category: 'integration',
  },
  configSchema: ChainConfig,
  autoDetect: (env) => Boolean(env.GATEWAY_URL),
  autoDetectHint: 'set GATEWAY_URL',
  setup: (context) => new Gateway(context),
  // The host reports this address to clients.
  getSharedState: ({ config }) => GATEWAY.share(config.GATEWAY_URL),
  getTools: ({ services: gateway }) => listChainTools(gateway),
});
