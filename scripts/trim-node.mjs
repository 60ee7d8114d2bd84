// Removes the C++ headers of the npm package `node`, a third of its size: nothing here compiles native code. Runs after
// each installation, on the Node of the system.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const platforms = 'node_modules/node/node_modules';
for (const name of existsSync(platforms) ? readdirSync(platforms) : [])
  if (name.startsWith('node-')) rmSync(join(platforms, name, 'include'), { recursive: true, force: true });
