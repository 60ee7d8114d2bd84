// Compiles proto/ into the module that holds the demo chain's schema: `npm run protos -w @sibyl/gateway`.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const require = createRequire(import.meta.url);
const PROTOS = fileURLToPath(new URL('../proto', import.meta.url));
const MODULE = new URL('../src/compiled-protos.ts', import.meta.url);

/** The files of proto/ and all they import, as the bytes of a FileDescriptorSet. */
export function compileProtos(): Buffer {
  const buf = require.resolve('@bufbuild/buf/bin/buf');
  const asSet = ['--as-file-descriptor-set', '--exclude-source-info'];
  return execFileSync(process.execPath, [buf, 'build', PROTOS, ...asSet, '-o', '-']);
}

if (import.meta.main) {
  const text = gzipSync(compileProtos(), { level: 9 }).toString('base64');
  const lines = [
    '/** Made from proto/ by scripts/compile-protos.ts: a FileDescriptorSet, gzip, base64. */',
    `export const COMPILED_PROTOS =\n  '${text}';`,
  ];
  writeFileSync(MODULE, `${lines.join('\n')}\n`);
}
