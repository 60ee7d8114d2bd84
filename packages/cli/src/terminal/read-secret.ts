import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { CommandError } from '../command.js';

/** Reads one secret: typed without being shown, or from a pipe. */
export async function readSecret(question: string): Promise<string> {
  const secret = process.stdin.isTTY ? await ask(question) : await text(process.stdin);
  if (!secret.trim()) throw new CommandError('Nothing was given');
  return secret.trim();
}

async function ask(question: string): Promise<string> {
  process.stderr.write(question);
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  try {
    return await terminal.question('');
  } finally {
    terminal.close();
    process.stderr.write('\n');
  }
}
