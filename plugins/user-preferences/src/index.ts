import {
  definePlugin,
  defineRoute,
  defineTool,
  type RoomPlace,
  type RoomState,
  sharedKey,
} from '@sibyl/plugin-kit';
import { type JsonObject, PreferencesPatch, UserPreferences } from '@sibyl/protocol';

const KEY = 'user-preferences';
const PREFERENCES = sharedKey<UserPreferences>('userPreferences');
/** For plugins that show and change preferences, such as in a chat. */
const PREFERENCE_STORE = sharedKey<PreferenceStore>('preferenceStore');

/** How the user wants the agent to behave, stored per room. */
export const userPreferences = definePlugin({
  name: 'user-preferences',
  version: '0.1.0',
  manifest: {
    title: 'User preferences',
    summary:
      'Remembers how the user wants the agent to behave: tone, length, format, language, names.',
    whenToUse: ['the user asks you to behave differently from now on'],
    whenNotToUse: [
      'the user states a fact about themselves',
      'the user wants something for this one answer only',
    ],
    examples: ['Answer in Spanish from now on.', 'Call me Sam.', 'Keep your answers short.'],
    category: 'core',
    visibility: 'always',
    stability: 'stable',
  },
  setup: ({ rooms }) => new PreferenceStore(rooms),
  getTools: ({ services: preferences }) => [
    defineTool({
      name: 'set_user_preferences',
      description: DESCRIPTION,
      inputSchema: PreferencesPatch,
      // Each sub-user has a room.
      reach: 'sub-user',
      run: async (patch, { user, session }) => {
        if (Object.keys(patch).length === 0) throw new Error('Nothing to change: name a field');
        const place = { owner: user.did, roomId: session.roomId };
        return { preferences: await preferences.change(place, patch) };
      },
    }),
  ],
  getSharedState: ({ services: preferences }) => ({
    ...PREFERENCE_STORE.share(preferences),
    ...PREFERENCES.sharePerTurn(({ user, session, permits }) =>
      permits('set_user_preferences')
        ? preferences.read({ owner: user.did, roomId: session.roomId })
        : {},
    ),
  }),
  routes: ({ services: preferences }) => [
    defineRoute({
      method: 'GET',
      path: '/user-preferences',
      summary: 'How the caller wants the oracle to behave',
      reply: UserPreferences,
      handler: ({ caller }) => preferences.read({ owner: caller.did }),
    }),
    defineRoute({
      method: 'PATCH',
      path: '/user-preferences',
      summary: 'Change how the oracle behaves towards the caller',
      body: PreferencesPatch,
      reply: UserPreferences,
      handler: ({ caller, body }) => preferences.change({ owner: caller.did }, body),
    }),
  ],
});

const DESCRIPTION = [
  'Changes how you behave towards this user from now on: your name, what you call them, language, tone, formality, length, format, and custom instructions in their own words.',
  'Call it as soon as the user asks for a lasting change of your behavior ("answer in Spanish from now on", "call me Sam", "be brief", "stop apologizing"), then continue in the new way.',
  'Set only the fields the user spoke of; the others stay. null removes a preference.',
  'A preference is how you should behave. These are not preferences:',
  'a fact about the user, such as where they work or what they plan: that belongs in memory, if you have one;',
  'something you made for them, such as a text, a plan or a list;',
  'a wish for this one answer ("just this once", "use bullets here", "translate this into French"): follow it now and save nothing.',
  'If it is unclear whether a wish is meant to last, follow it once and do not save it.',
].join(' ');

class PreferenceStore {
  constructor(private readonly rooms: RoomState) {}

  async read(place: RoomPlace): Promise<UserPreferences> {
    const stored = await this.rooms.read(place, KEY);
    return stored ? parsePreferences(stored) : {};
  }

  /** Absent fields stay, null clears; concurrent changes are all kept. */
  async change(place: RoomPlace, patch: PreferencesPatch): Promise<UserPreferences> {
    const updatedAt = new Date().toISOString();
    const changed = await this.rooms.update(place, KEY, (current) => {
      const given = Object.entries(patch).filter(([, value]) => value !== undefined);
      const merged = { ...parsePreferences(current), ...Object.fromEntries(given), updatedAt };
      return Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== null));
    });
    return parsePreferences(changed);
  }
}

const fields = Object.entries(UserPreferences.shape);

/** Field by field: others may write to the room too, and one invalid field must not cost the rest. */
function parsePreferences(stored: JsonObject = {}): UserPreferences {
  const valid = fields.flatMap(([name, schema]) => {
    const { data } = schema.safeParse(stored[name]);
    return data === undefined ? [] : [[name, data]];
  });
  return Object.fromEntries(valid);
}
