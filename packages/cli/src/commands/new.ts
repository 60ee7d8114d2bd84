import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Command, CommandError, UsageError } from '../command.js';
import { readVersion } from '../environment.js';
import type { Output } from '../terminal.js';

/** Writes the project of a custom oracle. */
export const newOracle: Command = {
  name: 'new',
  summary: 'Create a project for your own oracle',
  usage: ['<name> [--packages <folder>] [--no-install]'],
  details:
    'Writes a folder of that name with a plugin, its test and a configuration, and installs what it needs: "npm test" and "npm start" then work at once. In a checkout of Sibyl, its packages are built, packed and put into the folder; otherwise they come from the registry.',
  options: {
    packages: {
      type: 'string',
      value: 'folder',
      summary: 'Take the packages of Sibyl from tarballs in this folder, not from the registry',
    },
    'no-install': { type: 'boolean', summary: 'Write the files only' },
  },
  async run({ args: [name], options, output }) {
    if (!name || !/^[a-z][a-z0-9-]{0,63}$/.test(name)) {
      throw new UsageError('Give it a name: lower case letters, digits and -, such as my-oracle');
    }
    const { packages } = options;
    const isInstalled = !options['no-install'];
    const project = await createProject({
      name,
      packages: typeof packages === 'string' ? packages : undefined,
      isInstalled,
      output,
    });
    const steps = [`cd ${name}`, ...(isInstalled ? [] : ['npm install']), 'npm test', 'npm start'];
    output.result(project, [`Made ${project.folder}. Next:`, ...steps].join('\n  '));
    return 0;
  },
};

const TEMPLATE = fileURLToPath(new URL('../../template', import.meta.url));

/** npm leaves files of these names out of a package, or reads them as its own. */
const RENAMED = { gitignore: '.gitignore', 'package.json.template': 'package.json' } as const;

interface ProjectOptions {
  readonly name: string;
  /** A folder with tarballs of Sibyl's packages. */
  readonly packages: string | undefined;
  readonly isInstalled: boolean;
  readonly output: Output;
}

/** Writes a project from the template, and installs what it needs. */
async function createProject(options: ProjectOptions): Promise<{ folder: string }> {
  const { name, packages, isInstalled, output } = options;
  const folder = resolve(name);
  if (existsSync(folder)) throw new CommandError(`${folder} is there already: choose another name`);
  const given = packages === undefined ? undefined : tarballs(resolve(packages));
  await mkdir(folder);
  const specs = given ?? (await packCheckout(folder, output));
  await cp(TEMPLATE, folder, { recursive: true });
  for (const [from, to] of Object.entries(RENAMED))
    await rename(join(folder, from), join(folder, to));
  // Keys of model providers are going to be in it.
  const settings = await readFile(join(folder, 'env.example'));
  await writeFile(join(folder, '.env'), settings, { mode: 0o600, flag: 'wx' });
  await fillIn(folder, { __NAME__: name, __SIBYL__: readVersion() });
  await useTarballs(folder, specs);
  if (isInstalled) await output.progress('Installing', install(folder));
  return { folder };
}

/** The folder of the checkout that this command is part of, if it is in one. */
const CHECKOUT = fileURLToPath(new URL('../../../..', import.meta.url));
const PACK = 'scripts/pack.ts';

/** Packs the packages of the checkout into the project, so that they need no registry; none outside of a checkout. */
async function packCheckout(
  folder: string,
  output: Output,
): Promise<Readonly<Record<string, string>>> {
  if (!existsSync(join(CHECKOUT, PACK))) return {};
  const node = join(CHECKOUT, 'node_modules/node/bin/node');
  // A checkout has its own Node, since this one may be too old for its scripts.
  const program = existsSync(node) ? node : process.execPath;
  const target = join(folder, 'packages');
  const work = runProgram(program, [PACK, target], { cwd: CHECKOUT });
  await output.progress('Packing the packages of this checkout', work);
  // Relative, so that the project can be moved.
  return Object.fromEntries(
    Object.entries(tarballs(target)).map(([name, spec]) => [
      name,
      spec.replace(`file:${target}`, 'file:./packages'),
    ]),
  );
}

/** Replaces the words that stand for something else in every file. */
async function fillIn(folder: string, words: Readonly<Record<string, string>>): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const text = await readFile(path, 'utf8');
    const filled = text.replaceAll(/__[A-Z]+__/g, (word) => words[word] ?? word);
    if (filled !== text) await writeFile(path, filled);
  }
}

/** Points every package of Sibyl, also those that others need, at its tarball. */
async function useTarballs(folder: string, specs: Readonly<Record<string, string>>): Promise<void> {
  const path = join(folder, 'package.json');
  const manifest = JSON.parse(await readFile(path, 'utf8'));
  const pointed = (wanted: Record<string, string>) =>
    Object.fromEntries(Object.entries(wanted).map(([name, spec]) => [name, specs[name] ?? spec]));
  const changed = {
    ...manifest,
    dependencies: pointed(manifest.dependencies),
    devDependencies: pointed(manifest.devDependencies),
    overrides: { ...specs, ...manifest.overrides },
  };
  await writeFile(path, `${JSON.stringify(changed, null, 2)}\n`);
}

function install(folder: string): Promise<void> {
  const args = ['install', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
  return runProgram('npm', args, { cwd: folder });
}

function runProgram(
  program: string,
  args: readonly string[],
  { cwd }: { readonly cwd: string },
): Promise<void> {
  const child = spawn(program, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  return new Promise((resolved, reject) => {
    const fail = () =>
      reject(
        new CommandError(
          `${[program, ...args].join(' ')} failed: fix the cause, then run it again in ${cwd}`,
        ),
      );
    child.once('error', fail).once('close', (code) => (code === 0 ? resolved() : fail()));
  });
}

const NAME = /^sibyl-(.+)-\d+\.\d+\.\d+.*\.tgz$/;

/** Package name → its tarball, as `npm pack` names them. */
export function tarballs(folder: string): Record<string, string> {
  const found = readdirSync(folder).flatMap((file) => {
    const [, name] = NAME.exec(file) ?? [];
    return name ? [[`@sibyl/${name}`, `file:${join(folder, file)}`] as const] : [];
  });
  if (found.length === 0) throw new CommandError(`There are no packages of Sibyl in ${folder}`);
  return Object.fromEntries(found);
}
