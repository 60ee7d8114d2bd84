import { estimateTokens } from './estimate-tokens.js';

/** The beginning of a text, as much as `tokens` hold. */
export function keepStart(text: string, tokens: number): string {
  return text.slice(0, charactersWithin(text, tokens)).toWellFormed();
}

/** The end of a text, as much as `tokens` hold. */
export function keepEnd(text: string, tokens: number): string {
  return text.slice(text.length - charactersWithin(text, tokens)).toWellFormed();
}

function charactersWithin(text: string, tokens: number): number {
  const whole = estimateTokens(text);
  return whole <= tokens ? text.length : Math.floor((text.length * tokens) / whole);
}
