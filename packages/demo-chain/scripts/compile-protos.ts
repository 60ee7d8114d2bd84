// Compiles proto/ into the module that holds the demo chain's schema: `npm run protos -w @sibyl/demo-chain`. With --check
// it only compares the two.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { getVenv, installNode, SKIPPED } from '../../../scripts/third-party.ts';

const BUF = { name: '@bufbuild/buf', version: '1.74.0', more: [] };
const FOLDER = join(import.meta.dirname, '..');
const MODULE = join(FOLDER, 'src/compiled-protos.ts');

function main(): number {
  process.chdir(join(FOLDER, '../..'));
  const failure = installNode(BUF);
  if (failure) {
    process.stderr.write(`${failure}\n`);
    return SKIPPED;
  }
  const compiled = compileProtos();
  if (!process.argv.includes('--check')) {
    writeModule(compiled);
    return 0;
  }
  const [, text = ''] = /'(.*)'/.exec(readFileSync(MODULE, 'utf8')) ?? [];
  if (gunzipSync(Buffer.from(text, 'base64')).equals(compiled)) return 0;
  throw new Error(
    'compiled-protos.ts differs from proto/: run "npm run protos -w @sibyl/demo-chain"',
  );
}

/** The files of proto/ and all they import, as the bytes of a FileDescriptorSet. */
function compileProtos(): Buffer {
  const buf = join(getVenv(BUF), 'node_modules/@bufbuild/buf/bin/buf');
  const asSet = ['--as-file-descriptor-set', '--exclude-source-info'];
  return execFileSync(process.execPath, [buf, 'build', join(FOLDER, 'proto'), ...asSet, '-o', '-']);
}

function writeModule(compiled: Buffer): void {
  const text = gzipSync(compiled, { level: 9 }).toString('base64');
  const lines = [
    '/** Made from proto/ by scripts/compile-protos.ts: a FileDescriptorSet, gzip, base64. */',
    `export const COMPILED_PROTOS =\n  '${text}';`,
  ];
  writeFileSync(MODULE, `${lines.join('\n')}\n`);
}

process.exitCode = main();
