// Copies what the page at /docs needs of Swagger UI into the package that serves it: the package of Swagger UI has an install
// script, which some package managers refuse. Runs after each installation, on the Node of the system.
import { copyFileSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';

const SOURCE = 'node_modules/swagger-ui-dist';
const TARGET = 'packages/server-kit/swagger-ui';
const FILES = [
  'LICENSE',
  'NOTICE',
  'favicon-32x32.png',
  'swagger-ui-bundle.js',
  'swagger-ui-bundle.js.LICENSE.txt',
  'swagger-ui.css',
];

// An installation for production does not have it.
if (existsSync(SOURCE)) {
  mkdirSync(TARGET, { recursive: true });
  for (const name of FILES) copyFileSync(join(SOURCE, name), join(TARGET, name));
}
