// Checks the Node version before it imports anything that requires a recent one.
const REQUIRED_NODE = 24;

if (Number(process.versions.node.split('.')[0]) < REQUIRED_NODE) {
  process.stderr.write(
    `The gateway needs Node ${REQUIRED_NODE} or later, this is ${process.version}: start it with "npm run gateway", which includes it\n`,
  );
  process.exitCode = 1;
} else {
  await keepCompiledCode();
  const { serve } = await import('./serve.js');
  process.exitCode = await serve();
}

/** Next to the code, where only users who can change the code can write. */
async function keepCompiledCode(): Promise<void> {
  const { enableCompileCache } = await import('node:module');
  const { fileURLToPath } = await import('node:url');
  enableCompileCache(fileURLToPath(new URL('../.cache', import.meta.url)));
}
