import { type DynamicModule, Module } from '@nestjs/common';
import { definePlugin, type PluginContext } from '@sibyl/plugin-kit';
import { FactStore, migrations } from './fact-store.js';
import { MemoryController } from './memory-api.js';
import { knownFacts, memoryTools } from './memory-tools.js';

@Module({})
class MemoryModule {}

const factsOf = ({ database }: PluginContext) => new FactStore(database);

/** Facts about the user that outlive a conversation. */
export const memory = definePlugin({
  name: 'memory',
  version: '0.1.0',
  manifest: {
    title: 'Memory',
    summary: 'Remembers facts about the user across conversations, finds and forgets them.',
    whenToUse: [
      'the user tells something about themselves, their work, people, places or plans',
      'an answer depends on what the user may have told before',
      'the user asks what you know of them, or asks you to forget something',
    ],
    whenNotToUse: [
      'the user asks you to behave differently: that is a preference',
      'it matters in this conversation only',
    ],
    examples: ['I work on soil carbon in Kenya.', 'What do you know about my project?'],
    category: 'core',
    visibility: 'always',
  },
  migrations,
  getTools: (context) => memoryTools(factsOf(context)),
  getMiddlewares: (context) => [knownFacts(factsOf(context))],
  getNestModules: (context): DynamicModule[] => [
    {
      module: MemoryModule,
      controllers: [MemoryController],
      providers: [{ provide: FactStore, useValue: factsOf(context) }],
    },
  ],
});
