// Compiles every package, builds the page, then bundles the host, since loading its 1,500 modules one by one would take most of its start.
import { spawn, spawnSync } from 'node:child_process';
import {
  globSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Plugin } from 'rolldown';

const STAMP = 'node_modules/.cache/sibyl/built';
const LOCK = 'node_modules/.cache/sibyl/building.lock';
const BUNDLE = 'packages/host/dist/bundle';

/** The program that `npm start` runs. */
export const MAIN = `${BUNDLE}/main.js`;

/**
 * The native compiler, which takes half the processor time; the other one has the interface that scripts use.
 * Run it with `process.execPath`: PATH may lack it when no npm script runs.
 */
export const TSC = 'node_modules/typescript-native/bin/tsc';

/** Not bundled: optional dependencies, and those that load on first use. */
const external = [
  /^@nestjs\/(websockets|microservices|platform-socket)/,
  /^@fastify\/static/,
  /^class-(transformer|validator)/,
  /^pg-native/,
  /^(bufferutil|utf-8-validate)$/,
  /^@ai-sdk\//,
  /^(unpdf|mammoth|read-excel-file|html-to-text|fflate)(\/|$)/,
];

/** Resolves to the exit code. */
async function build(): Promise<number> {
  const startedAt = new Date();
  const { status } = spawnSync(process.execPath, [TSC, '-b'], { stdio: 'inherit' });
  if (status !== 0) return status ?? 1;
  await buildPage();
  const warnings = await bundle();
  if (warnings.length > 0) return 1;
  recordBuild(startedAt);
  return 0;
}

/** As `build`, for users: shows its progress, skips what is built, and leaves the check of types to developers. */
async function buildQuickly(): Promise<number> {
  const startedAt = new Date();
  const total = 3;
  console.log(`[1/${total}] Compiling the packages`);
  const status = await compileQuickly();
  if (status !== 0) return status;
  await runStep(`[2/${total}] Building the chat page`, PAGE, buildPage);
  await runStep(`[3/${total}] Bundling the host`, HOST, bundle);
  const seconds = ((Date.now() - startedAt.getTime()) / 1000).toFixed(0);
  console.log(`Built in ${seconds} s`);
  recordBuild(startedAt);
  return 0;
}

/** What a step writes, and what it reads. */
interface Step {
  readonly output: string;
  readonly sources: readonly string[];
}

/** What every step depends on. */
const SHARED = ['package-lock.json', 'tsconfig.base.json', 'scripts/build.ts'];

const listPackages = (...names: readonly string[]) => names.map((name) => `packages/${name}/src`);

const PAGE: Step = {
  output: 'packages/web/dist/index.html',
  sources: [
    ...SHARED,
    ...listPackages('web', 'client', 'protocol', 'ucan'),
    'packages/web/vite.config.ts',
    'packages/web/public',
    'packages/web/index.html',
  ],
};
const HOST: Step = {
  output: MAIN,
  sources: [
    ...SHARED,
    ...listPackages('host', 'plugin-kit', 'protocol', 'safe-fetch', 'server-kit', 'ucan'),
    ...globSync('plugins/*/src'),
  ],
};

async function runStep(title: string, step: Step, run: () => Promise<unknown>): Promise<void> {
  const isCurrent = step.sources.every((path) => readMtime(path) < readMtime(step.output));
  console.log(isCurrent ? `${title}: nothing has changed` : title);
  if (!isCurrent) await run();
}

/** Lists the packages as the compiler reaches them; it skips those that have not changed. */
function compileQuickly(): Promise<number> {
  const child = spawn(process.execPath, [TSC, '-b', '--noCheck', '--verbose'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (line) => {
    const [, name] = /Building project '.*?((?:packages|plugins)\/[^/]+)\//.exec(line) ?? [];
    if (name !== undefined) console.log(`      ${name}`);
    else if (line.includes(': error TS')) console.log(line);
  });
  return new Promise((resolve) => {
    child.once('error', () => resolve(1)).once('close', (code) => resolve(code ?? 1));
  });
}

function recordBuild(startedAt: Date): void {
  mkdirSync(dirname(STAMP), { recursive: true });
  writeFileSync(STAMP, '');
  // Changes during the build count as not built.
  utimesSync(STAMP, startedAt, startedAt);
}

/** Builds if a source has changed since the last build; of several concurrent processes, one builds. */
export async function buildIfChanged(): Promise<number> {
  if (isBuilt()) return 0;
  const { withFileLock } = await import('./file-lock.ts');
  return withFileLock(LOCK, async () => {
    if (isBuilt()) return 0;
    console.log('Building, about half a minute the first time:');
    return buildQuickly();
  });
}

/** Like `buildIfChanged`, for tests that run build output: blocks until it is current, and throws if the build fails. */
export function ensureBuilt(): void {
  if (isBuilt()) return;
  const args = ['scripts/build.ts', '--if-changed'];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`The build failed:\n${stdout}${stderr}`);
}

async function buildPage(): Promise<void> {
  // Also if a test starts the build, whose environment would select the development version of React.
  process.env.NODE_ENV = 'production';
  const { build: buildWithVite } = await import('vite');
  await buildWithVite({ root: 'packages/web', logLevel: 'warn' });
}

/** Prints and returns what the bundler warns about. */
async function bundle(): Promise<readonly string[]> {
  const warnings: string[] = [];
  // Loaded here, since most starts do not build.
  const { rolldown } = await import('rolldown');
  rmSync(BUNDLE, { recursive: true, force: true });
  const host = await rolldown({
    input: {
      main: 'packages/host/dist/main.js',
      // A separate process, started from the path of the file.
      'document-reader': 'packages/host/dist/files/document-reader.js',
    },
    platform: 'node',
    external,
    plugins: [lazyExports, withoutTls, withoutTables, withoutFormats, rxjsModules],
    logLevel: 'warn',
    onLog: (_, { message }) => {
      warnings.push(message);
      console.error(message);
    },
  });
  await host.write({
    dir: BUNDLE,
    format: 'esm',
    sourcemap: true,
    // The API document names routes after their classes.
    keepNames: true,
    // One non-ASCII character doubles the memory of a file; line breaks stay, for stack traces.
    minify: {
      compress: false,
      mangle: false,
      codegen: { asciiOnly: true, removeWhitespace: false },
    },
    comments: { jsdoc: false, annotation: false },
  });
  return warnings;
}

/**
 * `import` reads every export of a built-in module, and some load much that is rarely used, such as fetch and WebCrypto;
 * through `getBuiltinModule`, that is loaded on first use.
 */
const lazyExports: Plugin = {
  name: 'lazy-exports',
  resolveId: {
    filter: { id: /^(node:)?(crypto|fs|http|util)$/ },
    handler: (id) => `\0builtin-${id.replace('node:', '')}`,
  },
  load: {
    filter: { id: /^\0builtin-/ },
    handler: (id) =>
      `module.exports = process.getBuiltinModule('${id.replace('\0builtin-', 'node:')}');`,
  },
};

/** Many modules import TLS, which reads 150 certificates: it is loaded on first use. */
const withoutTls: Plugin = {
  name: 'without-tls',
  resolveId: {
    filter: { id: /^(node:)?(https|tls)$/ },
    handler: (id) => `\0lazy-${id.replace('node:', '')}`,
  },
  load: {
    filter: { id: /^\0lazy-/ },
    handler: (id) => {
      const name = id.replace('\0lazy-', 'node:');
      const getters = Object.keys(process.getBuiltinModule(name) ?? {}).map(
        (key) => `get ${key}() { return process.getBuiltinModule('${name}').${key}; },`,
      );
      return `module.exports = { ${getters.join(' ')} };`;
    },
  },
};

/**
 * Express depends on the tables of East Asian charsets, which are loaded if a request has one, and on several versions of the
 * list of media types, of which one is enough.
 */
const withoutTables: Plugin = {
  name: 'without-tables',
  resolveId: {
    filter: { id: /^mime-db$/ },
    handler: () => resolve('node_modules/mime-db/index.js'),
  },
  load: {
    filter: { id: /iconv-lite\/encodings\/tables\// },
    handler: (id) => {
      const table = id.slice(id.lastIndexOf('iconv-lite/'));
      return {
        code: `module.exports = require('node:module').createRequire(import.meta.filename)('${table}');`,
        moduleType: 'js',
      };
    },
  },
};

/** The loggers of Nest, which the host does not use, format times: the rules of all languages take 15 ms to load. */
const withoutFormats: Plugin = {
  name: 'without-formats',
  transform: {
    filter: { id: /@nestjs\/common\/services\/(console-)?logger\.service\.js$/ },
    handler: (code) => ({
      code: code.replace(
        /new Intl\.DateTimeFormat\((undefined, \{[^}]*\})\)/,
        '{ format: (time) => new Intl.DateTimeFormat($1).format(time) }',
      ),
      // Its lines stay where they are.
      map: null,
    }),
  },
};

/** Nest requires all CommonJS files of RxJS; of its modules, the bundle contains what is used. */
const rxjsModules: Plugin = {
  name: 'rxjs-modules',
  resolveId: {
    filter: { id: /^rxjs(\/operators)?$/ },
    handler: (id) => resolve('node_modules', id.replace('rxjs', 'rxjs/dist/esm'), 'index.js'),
  },
};

function isBuilt(): boolean {
  const builtAt = readMtime(STAMP);
  return readMtime(MAIN) > 0 && listSources().every((path) => readMtime(path) < builtAt);
}

function listSources(): string[] {
  const roots = ['packages', 'plugins'].filter((root) => readMtime(root) > 0);
  const workspaces = roots.flatMap((root) => readdirSync(root).map((name) => join(root, name)));
  const parts = workspaces.flatMap((path) =>
    ['src', 'public', 'index.html', 'tsconfig.json', 'vite.config.ts', 'package.json'].map((part) =>
      join(path, part),
    ),
  );
  return ['tsconfig.json', 'tsconfig.base.json', 'package-lock.json', 'scripts/build.ts', ...parts];
}

/** The last change of a file, or of any file in a folder; 0 if it does not exist. */
function readMtime(path: string): number {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats?.isDirectory()) return stats?.mtimeMs ?? 0;
  const inside = readdirSync(path).map((name) => readMtime(join(path, name)));
  return Math.max(stats.mtimeMs, ...inside);
}

if (import.meta.main)
  process.exitCode = await (process.argv.includes('--if-changed') ? buildIfChanged() : build());
