import type { ModelCall, ModelMessage, UserPart } from '../models/model.js';
import { estimateCall, keepStart } from './estimate-tokens.js';

/** Characters of a text that is worth shortening, and what is kept of it. */
const LONG_TEXT = 4000;
const KEPT_TOKENS = 500;

const LEFT_OUT = '[A file is left out here: it no longer fits into the conversation]';

/** Changes a message, or returns the same one. */
type Change = (message: ModelMessage) => ModelMessage;

/**
 * Leaves out what middlewares and tools added to a call until it fits: files first, then long texts, those of older
 * messages before those of the newest. Returns the same call if it fits.
 */
export function fitFiles(call: ModelCall, budget: number): ModelCall {
  const asked = call.messages.findLastIndex(({ role }) => role === 'user');
  const older = range(0, asked);
  const newest = range(Math.max(0, asked), call.messages.length);
  const plans: readonly [readonly number[], Change][] = [
    [older, dropFiles],
    [older, shortenTexts],
    [newest, shortenTexts],
    [newest, dropFiles],
  ];
  let fitted = call;
  for (const [positions, change] of plans)
    for (const at of positions) {
      if (estimateCall(fitted) <= budget) return fitted;
      fitted = changeMessage(fitted, at, change);
    }
  return fitted;
}

function range(start: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i);
}

function changeMessage(call: ModelCall, at: number, change: Change): ModelCall {
  const message = call.messages[at];
  if (!message) return call;
  const changed = change(message);
  return changed === message ? call : { ...call, messages: call.messages.with(at, changed) };
}

function dropFiles(message: ModelMessage): ModelMessage {
  if (message.role === 'tool') {
    if (!message.results.some(({ media }) => media)) return message;
    return { ...message, results: message.results.map(({ media, ...result }) => result) };
  }
  return changeParts(message, (part) =>
    part.type === 'file' ? { type: 'text', text: LEFT_OUT } : part,
  );
}

function shortenTexts(message: ModelMessage): ModelMessage {
  return changeParts(message, (part) => {
    if (part.type !== 'text' || part.text.length <= LONG_TEXT) return part;
    const start = keepStart(part.text, KEPT_TOKENS);
    return { type: 'text', text: `${start}\n[The rest is left out: it does not fit]` };
  });
}

/** Changes the parts of a message; what a user wrote is a string, or the first part. */
function changeParts(message: ModelMessage, change: (part: UserPart) => UserPart): ModelMessage {
  if (message.role !== 'user' || typeof message.content === 'string') return message;
  const content = message.content.map((part, i) => (i === 0 ? part : change(part)));
  const isSame = content.every((part, i) => part === message.content[i]);
  return isSame ? message : { ...message, content };
}
