import type { ModelMessage, UserPart } from '../model/model.js';
import { keepEnd } from './cut-text.js';
import { estimateTokens } from './estimate-tokens.js';

/** Ever shorter lengths for each message, in characters: the beginnings of all tell more than the whole of some. */
const LENGTHS = [4000, 1000, 300, 100];
const RESULT_LENGTH = 300;

/** Writes a conversation down for someone who is to sum it up, in at most `tokens`. */
export function writeTranscript(messages: readonly ModelMessage[], tokens: number): string {
  let transcript = '';
  for (const length of LENGTHS) {
    transcript = messages
      .map((message) => lineOf(message, length))
      .filter(Boolean)
      .join('\n');
    if (estimateTokens(transcript) <= tokens) break;
  }
  return keepEnd(transcript, tokens);
}

function lineOf(message: ModelMessage, length: number): string {
  switch (message.role) {
    case 'user':
      return `User: ${cut(userText(message.content), length)}`;
    case 'assistant':
      return message.text && `Assistant: ${cut(message.text, length)}`;
    case 'tool':
      return message.results
        .map(({ name, output }) => `Tool ${name}: ${cut(output, Math.min(length, RESULT_LENGTH))}`)
        .join('\n');
    default:
      return message satisfies never;
  }
}

function userText(content: string | readonly UserPart[]): string {
  if (typeof content === 'string') return content;
  return content.map((part) => (part.type === 'text' ? part.text : '(a file)')).join('\n');
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}
