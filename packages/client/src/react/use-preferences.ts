import type { UserPreferences } from '@sibyl/protocol';
import { useCallback } from 'react';
import { useOracle } from './oracle-provider.js';
import { type Loaded, useLoaded } from './use-loaded.js';

export interface UsePreferences extends Loaded {
  readonly preferences: UserPreferences;
}

/** How the user wants the agent to behave; it changes by what the user says in a chat. */
export function usePreferences(): UsePreferences {
  const client = useOracle();
  const load = useCallback((signal: AbortSignal) => client.preferences.get({ signal }), [client]);
  const { value: preferences = {}, ...loaded } = useLoaded(load);
  return { preferences, ...loaded };
}
