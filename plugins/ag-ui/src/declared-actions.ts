import type { TurnContext } from '@sibyl/plugin-kit';
import { AgAction } from '@sibyl/protocol';
import { z } from 'zod';

const KEY = 'actions';
const Remembered = z.array(AgAction).default([]).catch([]);

/** The actions of the user's page: as this message declares them, else as the last one did that declared any. */
export async function declaredActions({
  request,
  sessionState,
}: TurnContext): Promise<readonly AgAction[]> {
  const remembered = Remembered.parse(await sessionState.get(KEY));
  const { agActions = remembered } = request;
  // Most pages declare the same with every message.
  if (JSON.stringify(agActions) !== JSON.stringify(remembered))
    await sessionState.set(KEY, agActions);
  return agActions;
}
