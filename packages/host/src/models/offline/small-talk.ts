import type { Intent } from './intent.js';

const COUNT_LIMIT = 1000;
const SLOW_PAUSE_MS = 50;
const QUOTE_LENGTH = 200;

/** Answers with the time from the note of the message, otherwise from the clock. */
export const answerTime: Intent = ({ said, note, now }) => {
  if (!hasInOrder(said, /\bwhat('s| is)?\b/i, /\b(time|day|date)\b/i)) return undefined;
  const [, time] = /^\[Current time: (.+)\]$/m.exec(note) ?? /^\[Sent: (.+)\]$/m.exec(note) ?? [];
  return { text: `It is ${time ?? `${now.toISOString()} (UTC)`}.` };
};

/** Whether a line matches two patterns in this order; a single pattern would take quadratic time on long lines. */
function hasInOrder(said: string, first: RegExp, second: RegExp): boolean {
  return said.split('\n').some((line) => {
    const found = first.exec(line);
    return found !== null && second.test(line.slice(found.index + found[0].length));
  });
}

/** Lists the available tools. */
export const listCapabilities: Intent = ({ said, tools }) => {
  const asks =
    /\bwhat (can|do) you do\b|^help\W*$/i.test(said) ||
    hasInOrder(said, /\b(list|show|what)\b/i, /\b(capabilities|tools|plugins)\b/i);
  if (!asks) return undefined;
  if (tools.has('list_capabilities')) return { calls: [{ name: 'list_capabilities', input: {} }] };
  const names = [...tools.keys()].join(', ');
  return { text: names ? `I can use these tools: ${names}.` : 'I have no tools here.' };
};

/** Counts, for long or slow answers without a real model. */
export const count: Intent = ({ said }) => {
  const found = /\bcount( slowly)? to (\d+)\b/i.exec(said);
  if (!found) return undefined;
  const length = Math.min(Number(found[2]), COUNT_LIMIT);
  const text = Array.from({ length }, (_, i) => i + 1).join(' ');
  return found[1] ? { text, pauseMs: SLOW_PAUSE_MS } : { text };
};

/** Explains what this model is and how to configure a better one. */
export const introduce: Intent = ({ said, fileCount }) => {
  const quote = said.length > QUOTE_LENGTH ? `${said.slice(0, QUOTE_LENGTH)}…` : said;
  const files = fileCount > 0 ? ` I cannot read the ${fileCount} file(s) that came with it.` : '';
  const heard = quote ? `You said: “${quote}”.${files}\n\n` : '';
  return { text: `${heard}${INTRODUCTION}` };
};

const INTRODUCTION = [
  'I am the built-in offline model: a few rules, not a language model, made for the first five minutes and for tests.',
  'I can change your preferences ("answer in Spanish from now on"), use a tool you name ("use list_capabilities"), give the time and count.',
  'For real answers, the operator of this oracle sets OPENAI_API_KEY, ANTHROPIC_API_KEY or GOOGLE_GENERATIVE_AI_API_KEY, or MODEL=openai-compatible/<model-id> with MODEL_BASE_URL, and starts it again.',
].join(' ');
