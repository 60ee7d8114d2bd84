#!/usr/bin/env node
// Nothing that needs a recent Node may be imported before it is known to be one.
// A new project installs its own.
const REQUIRED_NODE = process.argv[2] === 'new' ? 20 : 24;

if (Number(process.versions.node.split('.')[0]) < REQUIRED_NODE) {
  const error = `sibyl needs Node ${REQUIRED_NODE} or later, this is ${process.version}: install it, or add the npm package "node@${REQUIRED_NODE}" to your project and run sibyl by an npm script`;
  if (process.argv.includes('--json'))
    process.stdout.write(`${JSON.stringify({ error, code: 'failed' })}\n`);
  else process.stderr.write(`${error}\n`);
  process.exitCode = 1;
} else {
  exitWhenOutputFails();
  await cacheCompiledCode();
  const { run } = await import('./run.js');
  process.exitCode = await run(process.argv.slice(2));
}

/** In a folder beside the code, where only users who can change the code can write. */
async function cacheCompiledCode(): Promise<void> {
  const { enableCompileCache } = await import('node:module');
  const { fileURLToPath } = await import('node:url');
  // Node 20, with which a project can be created, has no such cache.
  enableCompileCache?.(fileURLToPath(new URL('.cache', import.meta.url)));
}

/** A reader such as `head` closes the pipe once it has enough: there is nothing left to do, and nothing to report. A full disk is reported. */
function exitWhenOutputFails(): void {
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') process.exit();
      if (stream === process.stdout)
        process.stderr.write(`Cannot write the result: ${error.message}\n`);
      process.exit(1);
    });
}
