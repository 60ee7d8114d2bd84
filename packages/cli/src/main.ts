#!/usr/bin/env node
// Nothing that needs a recent Node may be imported before it is known to be one.
// A new project installs its own.
const REQUIRED_NODE = process.argv[2] === 'new' ? 20 : 24;

if (Number(process.versions.node.split('.')[0]) < REQUIRED_NODE) {
  process.stderr.write(
    `sibyl needs Node ${REQUIRED_NODE} or later, this is ${process.version}: install it, or add the npm package "node@${REQUIRED_NODE}" to your project and run sibyl by an npm script\n`,
  );
  process.exitCode = 1;
} else {
  const { run } = await import('./run.js');
  process.exitCode = await run(process.argv.slice(2));
}
