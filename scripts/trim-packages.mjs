// Removes what nothing here needs from installed packages, a third of their size: source maps, the C++ headers of the npm
// package `node`, and the builds of Mermaid for pages without a bundler. Runs after each installation, on the Node of the system.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const remove = (path) => rmSync(path, { recursive: true, force: true });
const list = (folder, options) => (existsSync(folder) ? readdirSync(folder, options) : []);

for (const name of list('node_modules', { recursive: true }))
  if (/\.([cm]?[jt]s|css)\.map$/.test(name)) remove(join('node_modules', name));

const platforms = 'node_modules/node/node_modules';
for (const name of list(platforms))
  if (name.startsWith('node-')) remove(join(platforms, name, 'include'));

for (const folder of ['node_modules/mermaid/dist', 'node_modules/mermaid/dist/chunks'])
  for (const name of list(folder))
    if (/^mermaid\.(esm|min|js|tiny)/.test(name)) remove(join(folder, name));

// The A2A SDK is imported, never required.
const a2a = 'node_modules/@a2a-js/sdk/dist';
for (const name of list(a2a, { recursive: true })) if (/\.c[tj]s$/.test(name)) remove(join(a2a, name));
