import { shortenResult } from '../calls/result-text.js';
import type { ModelMessage } from '../model/model.js';
import { estimateMessages } from './estimate-tokens.js';

/** What stays of a tool result in an older turn, in characters: what came of it is in the answer. */
export const OLD_RESULT_LENGTH = 500;

/** Ever shorter lengths for tool results, in characters, until they fit. */
const LENGTHS = [20_000, 5000, 1000, 250];

/** The messages with no tool result longer than `limit` characters. */
export function trimResults(messages: readonly ModelMessage[], limit: number): ModelMessage[] {
  return messages.map((message) => {
    if (message.role !== 'tool') return message;
    if (message.results.every(({ output }) => output.length <= limit)) return message;
    const results = message.results.map((result) => ({
      ...result,
      output: shortenResult(result.output, limit),
    }));
    return { ...message, results };
  });
}

/** Shortens the tool results of a turn until it fits into `room` tokens: the newest step's last. */
export function squeezeTurn(turn: readonly ModelMessage[], room: number): readonly ModelMessage[] {
  const newest = Math.max(
    0,
    turn.findLastIndex(({ role }) => role === 'tool'),
  );
  const older = LENGTHS.map((length) => () => [
    ...trimResults(turn.slice(0, newest), length),
    ...turn.slice(newest),
  ]);
  const all = LENGTHS.map((length) => () => [
    ...trimResults(turn.slice(0, newest), LENGTHS.at(-1) ?? length),
    ...trimResults(turn.slice(newest), length),
  ]);
  let squeezed = turn;
  for (const squeeze of [...older, ...all]) {
    if (estimateMessages(squeezed) <= room) break;
    squeezed = squeeze();
  }
  return squeezed;
}
