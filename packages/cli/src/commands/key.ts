import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { openKeyFile, signerFromMnemonic, signerFromPrivateKey } from '@sibyl/client/node';
import { exportPrivateKey, signerFromMnemonic as seedFromMnemonic } from '@sibyl/ucan';
import { type Call, type Command, CommandError, findAction } from '../command.js';
import { keyFile, openOracle } from '../environment.js';

/** Your key: who you are to every oracle. */
export const key: Command = {
  name: 'key',
  summary: 'Show, make, import or export your key',
  usage: ['[show]', 'new', 'import [--mnemonic]', 'export'],
  details: [
    'The key is kept in SIBYL_KEY_FILE, else in ~/.config/sibyl/key, readable by you alone; it is made when first needed.',
    '"new" and "import" keep the key that was there beside it, with the time in its name.',
    '"import" reads the key from the terminal or from standard input, never from the command line, which others can see.',
  ].join('\n'),
  options: {
    mnemonic: { type: 'boolean', summary: 'With import: the words of a mnemonic instead of a key' },
  },
  run(call) {
    const [action = 'show'] = call.args;
    return findAction(actions, action)(call);
  },
};

async function show({ output }: Call): Promise<number> {
  const path = keyFile();
  const { did } = await openKeyFile(path);
  output.result({ did, path }, did);
  return 0;
}

async function exportKey({ output }: Call): Promise<number> {
  const path = keyFile();
  const { did } = await openKeyFile(path);
  const privateKey = (await readFile(path, 'utf8')).trim();
  output.note('Keep this secret: anyone who has it can act as you.');
  output.result({ did, privateKey }, privateKey);
  return 0;
}

async function importKey(call: Call): Promise<number> {
  const { mnemonic } = call.options;
  const secret = await readSecret(mnemonic ? 'Mnemonic: ' : 'Private key: ');
  // Fails with a clear error before anything is replaced.
  if (!mnemonic) signerFromPrivateKey(secret);
  else signerFromMnemonic(secret);
  return replace(call, mnemonic ? derivePrivateKey(secret) : secret);
}

const actions = {
  show,
  new: (call: Call) => replace(call, undefined),
  import: importKey,
  export: exportKey,
};

function derivePrivateKey(mnemonic: string): string {
  const { ok, error } = seedFromMnemonic(mnemonic);
  if (error) throw new CommandError(error.detail);
  return exportPrivateKey(ok);
}

/** Puts another key in place, a new one unless given; the old one stays beside it. */
async function replace({ output }: Call, text: string | undefined): Promise<number> {
  const path = keyFile();
  const kept = `${path}.${new Date().toISOString().replaceAll(/[:.]/g, '-')}`;
  const hadKey = await rename(path, kept).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
      return false;
    },
  );
  if (text !== undefined) {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(path, `${text.trim()}\n`, { mode: 0o600, flag: 'wx' });
    await chmod(path, 0o600);
  }
  const { did } = await openKeyFile(path);
  if (hadKey) output.note(`The key you had is kept in ${kept}`);
  output.result({ did, path, ...(hadKey && { kept }) }, did);
  return 0;
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
