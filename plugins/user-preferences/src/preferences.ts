import { Controller, Get, Inject } from '@nestjs/common';
import {
  type Caller,
  CurrentCaller,
  Describe,
  defineTool,
  type RoomPlace,
  type RoomState,
  type Tool,
} from '@sibyl/plugin-kit';
import { type JsonObject, PreferencesPatch, UserPreferences } from '@sibyl/protocol';

const KEY = 'user-preferences';

/** Keeps what a user prefers in a room. */
export class PreferenceKeeper {
  constructor(private readonly rooms: RoomState) {}

  async read(place: RoomPlace): Promise<UserPreferences> {
    return preferencesIn(await this.rooms.read(place, KEY));
  }

  /** What is absent stays, null clears; changes that arrive together are all kept. */
  async change(place: RoomPlace, patch: PreferencesPatch): Promise<UserPreferences> {
    const updatedAt = new Date().toISOString();
    const changed = await this.rooms.update(place, KEY, (current) => {
      const given = Object.entries(patch).filter(([, value]) => value !== undefined);
      const merged = { ...preferencesIn(current), ...Object.fromEntries(given), updatedAt };
      return Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== null));
    });
    return preferencesIn(changed);
  }
}

const fields = Object.entries(UserPreferences.shape);

/** Field by field: a room may be kept where others write too, and one bad field must not cost the rest. */
function preferencesIn(stored: JsonObject = {}): UserPreferences {
  const sound = fields.flatMap(([name, schema]) => {
    const { data } = schema.safeParse(stored[name]);
    return data === undefined ? [] : [[name, data]];
  });
  return Object.fromEntries(sound);
}

const DESCRIPTION = [
  'Changes how you behave towards this user from now on: your name, what you call them, language, tone, formality, length, format, and custom instructions in their own words.',
  'Call it as soon as the user asks for a lasting change of your behaviour ("answer in Spanish from now on", "call me Sam", "be brief", "stop apologising"), then go on in the new way.',
  'Set only the fields the user spoke of; the others stay. null takes a preference back.',
  'A preference is how you should behave. It is none when it is:',
  'a fact about the user, such as where they work or what they plan: that belongs in memory, if you have one;',
  'something you made for them, such as a text, a plan or a list;',
  'a wish for this one answer ("just this once", "use bullets here", "translate this into French"): follow it now and save nothing.',
  'If you cannot tell whether a wish is meant to last, follow it once and do not save it.',
].join(' ');

/** Lets the agent keep what the user prefers (contract B6). */
export const setPreferencesTool = (preferences: PreferenceKeeper): Tool =>
  defineTool({
    name: 'set_user_preferences',
    description: DESCRIPTION,
    inputSchema: PreferencesPatch,
    run: async (patch, { user, session }) => {
      if (Object.keys(patch).length === 0) throw new Error('Nothing to change: name a field');
      const place = { owner: user.did, roomId: session.roomId };
      return { preferences: await preferences.change(place, patch) };
    },
  });

@Controller('user-preferences')
export class PreferencesController {
  constructor(@Inject(PreferenceKeeper) private readonly preferences: PreferenceKeeper) {}

  @Get()
  @Describe({ summary: 'How the caller wants the oracle to behave', reply: UserPreferences })
  read(@CurrentCaller() { did: owner }: Caller): Promise<UserPreferences> {
    return this.preferences.read({ owner });
  }
}
