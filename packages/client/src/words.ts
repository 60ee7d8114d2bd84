import { entropyToMnemonic, mnemonicToEntropy, validateMnemonic } from '@scure/bip39';
import { wordlist } from '@scure/bip39/wordlists/english.js';

/** The words of a 32-byte key. */
export const WORD_COUNT = 24;

/**
 * A key as words of BIP 39, the last of which contains a checksum. The words are the key itself; a wallet derives other keys
 * from such words.
 */
export const toWords = (seed: Uint8Array): readonly string[] =>
  entropyToMnemonic(seed, wordlist).split(' ');

export type WordsError =
  | { readonly problem: 'count'; readonly count: number }
  | { readonly problem: 'unknown'; readonly word: string }
  | { readonly problem: 'checksum' };

/** Reads words in any case, separated or numbered in any way. */
export function parseWords(text: string): { readonly seed: Uint8Array } | WordsError {
  const words = text.toLowerCase().match(/[a-z]+/g) ?? [];
  const unknown = words.find((word) => !wordlist.includes(word));
  if (unknown !== undefined) return { problem: 'unknown', word: unknown };
  if (words.length !== WORD_COUNT) return { problem: 'count', count: words.length };
  const mnemonic = words.join(' ');
  if (!validateMnemonic(mnemonic, wordlist)) return { problem: 'checksum' };
  return { seed: mnemonicToEntropy(mnemonic, wordlist) };
}
