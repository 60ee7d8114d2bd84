import type { ModelMessage } from '../model/model.js';

/** A message of the user and all that followed it. */
export type ConversationTurn = readonly ModelMessage[];

/** Cuts a conversation before every message of the user. */
export function splitTurns(messages: readonly ModelMessage[]): ConversationTurn[] {
  const turns: ModelMessage[][] = [];
  for (const message of messages) {
    const open = turns.at(-1);
    if (message.role === 'user' || open === undefined) turns.push([message]);
    else open.push(message);
  }
  return turns;
}
