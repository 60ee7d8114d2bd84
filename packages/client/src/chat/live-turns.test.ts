import type { Message } from '@sibyl/protocol';
import { expect, it } from 'vitest';
import { createFollowedTurn, type LiveTurn, LiveTurns } from './live-turns.js';

const message = (requestId: string): Message => ({
  id: requestId,
  type: 'human',
  content: '',
  createdAt: '',
  requestId,
  isComplete: true,
});

function fill(count: number, phase: LiveTurn['phase']) {
  const turns = new LiveTurns();
  const ids = Array.from({ length: count }, (_, i) => `${phase}-${i}`);
  for (const id of ids) turns.put({ ...createFollowedTurn(id), phase });
  return { turns, ids, history: ids.map(message) };
}
const listIds = (turns: LiveTurns) => turns.list().map(({ requestId }) => requestId);

it('LiveTurns.dropStored drops ended turns that are in the history, except for the latest', () => {
  const { turns, ids, history } = fill(1000, 'ended');
  turns.dropStored(history);
  expect(listIds(turns)).toEqual(ids.slice(-5));
  expect(turns.get('ended-0')).toBeUndefined();
});

it('LiveTurns.dropStored keeps what is not in the history, and what has not ended', () => {
  const { turns, ids } = fill(20, 'ended');
  turns.dropStored([]);
  expect(listIds(turns)).toEqual(ids);
  for (const phase of ['open', 'rejoining', 'lost'] as const) {
    const other = fill(20, phase);
    other.turns.dropStored(other.history);
    expect(listIds(other.turns)).toEqual(other.ids);
  }
});

it('LiveTurns.dropStored marks answered turns that are not in a history that was loaded after them', () => {
  const { turns } = fill(2, 'ended');
  const [first] = turns.list();
  if (first) turns.put({ ...first, turn: { ...first.turn, messageId: 'answer' } });
  expect(turns.listAnswered()).toEqual(['ended-0']);
  turns.dropStored([], turns.listAnswered());
  expect(turns.list().map(({ isStored }) => isStored)).toEqual([true, undefined]);
});

it('LiveTurns.discard drops a message in any phase until the server has accepted it', () => {
  for (const phase of ['open', 'rejoining', 'lost'] as const) {
    const { turns } = fill(1, phase);
    expect(turns.discard(`${phase}-0`)).toBe(true);
    const [accepted] = fill(1, phase).turns.list();
    if (accepted) turns.put({ ...accepted, turn: { ...accepted.turn, runId: 'run' } });
    expect(turns.discard(`${phase}-0`)).toBe(false);
    expect(listIds(turns)).toEqual([`${phase}-0`]);
  }
});
