import { type DynamicModule, Module } from '@nestjs/common';
import { definePlugin, type TurnContext } from '@sibyl/plugin-kit';
import { PreferenceKeeper, PreferencesController, setPreferencesTool } from './preferences.js';

@Module({})
class PreferencesModule {}

/** How the user wants the agent to behave, kept per room (contract A1, B6). */
export const userPreferences = definePlugin({
  name: 'user-preferences',
  version: '0.1.0',
  manifest: {
    title: 'User preferences',
    summary:
      'Remembers how the user wants the agent to behave: tone, length, format, language, names.',
    whenToUse: ['the user asks you to behave differently from now on'],
    whenNotToUse: [
      'the user tells a fact about themselves',
      'the user wants something for this one answer only',
    ],
    examples: ['Answer in Spanish from now on.', 'Call me Sam.', 'Keep your answers short.'],
    category: 'core',
    visibility: 'always',
    stability: 'stable',
  },
  getTools: ({ rooms }) => [setPreferencesTool(new PreferenceKeeper(rooms))],
  getSharedState({ rooms }) {
    const preferences = new PreferenceKeeper(rooms);
    return {
      userPreferences: ({ user, session }: TurnContext) =>
        preferences.read({ owner: user.did, roomId: session.roomId }),
    };
  },
  getNestModules: ({ rooms }): DynamicModule[] => [
    {
      module: PreferencesModule,
      controllers: [PreferencesController],
      providers: [{ provide: PreferenceKeeper, useValue: new PreferenceKeeper(rooms) }],
    },
  ],
});
