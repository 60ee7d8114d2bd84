import { defineTool, type Tool } from '@sibyl/plugin-kit';
import { PreferencesPatch } from '@sibyl/protocol';
import type { PreferenceKeeper } from './preference-keeper.js';

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
