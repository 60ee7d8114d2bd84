import { randomUUID } from 'node:crypto';
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { parseWords, toWords, WORD_COUNT, type WordsError } from '@sibyl/client/words';
import {
  exportPrivateKey,
  generateSigner,
  type Signer,
  signerFromMnemonic,
  signerFromPrivateKey,
  signerFromSeed,
} from '@sibyl/ucan';
import { type Call, type Command, CommandError, findAction } from '../command.js';
import { keyFile, openOracle, openSigner } from '../environment.js';

/** Your key: who you are to every oracle. */
export const key: Command = {
  name: 'key',
  summary: 'Show, make, import or export your key',
  usage: ['[show]', 'new', 'import [--wallet-mnemonic]', 'export [--words]'],
  details: [
    'The key is kept in SIBYL_KEY_FILE, else in ~/.config/sibyl/key, readable by you alone; it is made when first needed.',
    '"new" and "import" keep the key that was there beside it, with the time in its name.',
    '"import" reads the key from the terminal or from standard input, never from the command line, which others can see: a private key, or the 24 words that the chat page shows.',
  ].join('\n'),
  options: {
    words: {
      type: 'boolean',
      summary: 'With export: the 24 words that the chat page shows and accepts',
    },
    'wallet-mnemonic': {
      type: 'boolean',
      summary:
        'With import: the mnemonic of a wallet, whose text is hashed; not the words of the page',
    },
  },
  run(call) {
    const [action = 'show'] = call.args;
    return findAction(actions, action)(call);
  },
};

async function show({ output }: Call): Promise<number> {
  const path = keyFile();
  const { did } = await openSigner(path);
  output.result({ did, path }, did);
  return 0;
}

async function exportKey({ output, options }: Call): Promise<number> {
  const path = keyFile();
  const { did } = await openSigner(path);
  const signer = unwrap(signerFromPrivateKey(await readFile(path, 'utf8')));
  output.note('Keep this secret: anyone who has it can act as you.');
  if (options.words) {
    const words = toWords(signer.exportSeed());
    output.result({ did, words }, words.join(' '));
  } else {
    const privateKey = exportPrivateKey(signer);
    output.result({ did, privateKey }, privateKey);
  }
  return 0;
}

async function importKey(call: Call): Promise<number> {
  const isWallet = Boolean(call.options['wallet-mnemonic']);
  const secret = await readSecret(isWallet ? 'Mnemonic: ' : `Private key or ${WORD_COUNT} words: `);
  // Fails with a clear error before anything is replaced.
  const signer = isWallet ? unwrap(signerFromMnemonic(secret)) : parseKey(secret);
  return replace(call, signer);
}

/** Words are the key itself, as in the chat page. */
function parseKey(text: string): Signer {
  if (!/\s/.test(text)) return unwrap(signerFromPrivateKey(text));
  const parsed = parseWords(text);
  if ('seed' in parsed) return unwrap(signerFromSeed(parsed.seed));
  throw new CommandError(describeWords(parsed));
}

function describeWords(error: WordsError): string {
  switch (error.problem) {
    case 'count':
      return `A key has ${WORD_COUNT} words; these are ${error.count}. For the mnemonic of a wallet, add --wallet-mnemonic`;
    case 'unknown':
      return `"${error.word}" is not one of the words of a key: check its spelling`;
    case 'checksum':
      return 'These words do not belong together: one is wrong, or two are swapped';
  }
}

function unwrap({ ok, error }: ReturnType<typeof signerFromSeed>): Signer {
  if (ok) return ok;
  throw new CommandError(`Invalid key: ${error.detail}`);
}

const actions = {
  show,
  new: (call: Call) => replace(call, generateSigner()),
  import: importKey,
  export: exportKey,
};

/** Puts another key in place; the old one stays beside it. */
async function replace({ output }: Call, signer: Signer): Promise<number> {
  const path = keyFile();
  const now = new Date().toISOString().replaceAll(/[:.]/g, '-');
  const [draft, kept] = [`${path}.${randomUUID()}`, `${path}.${now}`];
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  try {
    // Complete before the old one loses its name: without a key, the next command would make another one.
    await writeFile(draft, `${exportPrivateKey(signer)}\n`, {
      mode: 0o600,
      flag: 'wx',
      flush: true,
    });
    const hadKey = await keepOld(path, kept);
    await rename(draft, path);
    if (hadKey) output.note(`The key you had is kept in ${kept}`);
    output.result({ did: signer.did, path, ...(hadKey && { kept }) }, signer.did);
    return 0;
  } finally {
    await rm(draft, { force: true });
  }
}

async function keepOld(path: string, kept: string): Promise<boolean> {
  try {
    await link(path, kept);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/** Reads one secret: typed without being shown, or from a pipe. */
async function readSecret(question: string): Promise<string> {
  const secret = process.stdin.isTTY ? await ask(question) : await text(process.stdin);
  if (!secret.trim()) throw new CommandError('No input');
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

/** Signs a bearer token. */
export const token: Command = {
  name: 'token',
  summary: 'Print a bearer token for curl',
  usage: ['[url]'],
  details: [
    'Signed by your key for the oracle at that address, valid for five minutes. Use it so:',
    '  curl -H "Authorization: Bearer $(sibyl token)" -H "X-Auth-Type: ucan" http://127.0.0.1:3000/sessions',
  ].join('\n'),
  async run({ args: [url], output }) {
    const { signer, did } = await openOracle(url, output);
    const now = Math.floor(Date.now() / 1000);
    const minted = await signer.invoke({ audience: did, now });
    output.result({ ...minted, issuer: signer.did, audience: did }, minted.token);
    return 0;
  },
};
