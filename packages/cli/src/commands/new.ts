import { constants, existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, rename, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Command, CommandError, UsageError } from '../command.js';
import { readVersion } from '../environment.js';
import { Interruption, interruptible, removeFolder, runProgram } from '../interruptible.js';
import type { Output } from '../terminal.js';

/** Writes the project of a custom oracle. */
export const newOracle: Command = {
  name: 'new',
  summary: 'Create a project for your own oracle',
  usage: ['<name> [--packages <folder>] [--no-install]'],
  details:
    'Writes a folder of that name with a plugin, its test and a configuration, and installs what it needs: "npm test" and "npm start" then work at once. In a checkout of Sibyl, its packages are built, packed and put into the folder with what they depend on, so that no registry is needed; otherwise everything comes from the registry.',
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
    const packages = typeof options.packages === 'string' ? options.packages : undefined;
    const isInstalled = !options['no-install'];
    const folder = resolve(name);
    const steps = [`cd ${name}`, ...(isInstalled ? [] : ['npm install']), 'npm test', 'npm start'];
    return interruptible(async (signal) => {
      await createProject({ name, folder, packages, isInstalled, output, signal });
      output.result({ folder }, [`Made ${folder}. Next:`, ...steps].join('\n  '));
      return 0;
    });
  },
};

const TEMPLATE = fileURLToPath(new URL('../../template', import.meta.url));

/** npm leaves files of these names out of a package, or reads them as its own. */
const RENAMED = { gitignore: '.gitignore', 'package.json.template': 'package.json' } as const;

interface ProjectOptions {
  readonly name: string;
  readonly folder: string;
  /** A folder with tarballs of Sibyl's packages. */
  readonly packages: string | undefined;
  readonly isInstalled: boolean;
  readonly output: Output;
  readonly signal: AbortSignal;
}

/** Writes a project from the template, and installs what it needs. */
async function createProject(options: ProjectOptions): Promise<void> {
  const { folder, packages, isInstalled, output } = options;
  if (existsSync(folder))
    throw new CommandError(`${folder} is there already: choose another name, or delete it`);
  const given = packages === undefined ? undefined : tarballs(resolve(packages));
  mkdirSync(folder);
  const whole = { folder, advice: `Removed ${folder}: run "sibyl new" again`, output };
  await removeUnfinished(whole, () => writeProject(options, given));
  if (!isInstalled) return;
  // Without what the checkout has copied, npm could not install the rest.
  const isFromCheckout = given === undefined && isInCheckout();
  const modules = {
    folder: join(folder, 'node_modules'),
    advice: `Not installed: run "npm install" in ${folder}`,
    output,
  };
  await removeUnfinished(isFromCheckout ? whole : modules, () =>
    output.progress('Installing', install(options, isFromCheckout)),
  );
}

async function writeProject(options: ProjectOptions, given?: Specs): Promise<void> {
  const { name, folder, signal } = options;
  const specs = given ?? (isInCheckout() ? await packCheckout(options) : {});
  await cp(TEMPLATE, folder, { recursive: true });
  for (const [from, to] of Object.entries(RENAMED))
    await rename(join(folder, from), join(folder, to));
  // Keys of model providers are going to be in it.
  const settings = await readFile(join(folder, 'env.example'));
  await writeFile(join(folder, '.env'), settings, { mode: 0o600, flag: 'wx' });
  await fillIn(folder, { __NAME__: name, __SIBYL__: readVersion() });
  await useTarballs(folder, specs);
  signal.throwIfAborted();
}

interface Unfinished {
  readonly folder: string;
  /** What to do after an interruption. */
  readonly advice: string;
  readonly output: Output;
}

/** Removes the folder if the work fails or is interrupted, so that it can be done again. */
async function removeUnfinished(
  { folder, advice, output }: Unfinished,
  work: () => Promise<void>,
): Promise<void> {
  // The command exits at once if its output is closed.
  const discard = () => rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  process.once('exit', discard);
  try {
    await work();
  } catch (error) {
    const removal = removeFolder(folder);
    const interruption = error instanceof Interruption ? error.signal : undefined;
    // Writing to a terminal that was closed would end the command before the folder is removed.
    await (interruption === 'SIGHUP' ? removal : output.progress('Removing', removal));
    if (interruption) output.note(advice);
    throw error;
  } finally {
    process.off('exit', discard);
  }
}

/** The folder of the checkout that this command is part of, if it is in one. */
const CHECKOUT = fileURLToPath(new URL('../../../..', import.meta.url));
const PACK = 'scripts/pack.ts';

const AGAIN = 'fix the cause, then run "sibyl new" again';

const isInCheckout = () => existsSync(join(CHECKOUT, PACK));

/** Package name → what package.json says of it. */
type Specs = Readonly<Record<string, string>>;

/** Packs the packages of the checkout into the project, so that they need no registry. */
async function packCheckout({ folder, output, signal }: ProjectOptions): Promise<Specs> {
  const node = join(CHECKOUT, 'node_modules/node/bin/node');
  // A checkout has its own Node, since this one may be too old for its scripts.
  const program = existsSync(node) ? node : process.execPath;
  const target = join(folder, 'packages');
  const options = { cwd: CHECKOUT, advice: AGAIN, signal };
  const work = runProgram(program, [PACK, target], options);
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
async function useTarballs(folder: string, specs: Specs): Promise<void> {
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

/** Installs what the project needs: from the checkout if it is made by one, and from the registry what that lacks. */
async function install({ folder, signal }: ProjectOptions, isFromCheckout: boolean): Promise<void> {
  const args = ['install', '--no-audit', '--no-fund', '--loglevel=error'];
  const advice = isFromCheckout ? AGAIN : `fix the cause, then run "npm install" in ${folder}`;
  const options = { cwd: folder, advice, signal };
  if (isFromCheckout && (await copyDependencies(folder, signal))) {
    const offline = runProgram('npm', [...args, '--offline'], { ...options, isSilent: true });
    if ((await Promise.allSettled([offline]))[0].status === 'fulfilled') return;
  }
  await runProgram('npm', [...args, '--prefer-offline'], options);
}

/** What a lock file says of an installed package. */
interface LockEntry {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  /** A tarball; the folder of a package of the checkout, if `link` is set. */
  readonly resolved?: string;
  readonly link?: boolean;
  /** Names of commands, and their files. */
  readonly bin?: Readonly<Record<string, string>>;
}

type LockEntries = Readonly<Record<string, LockEntry>>;

type ProjectManifest = Readonly<
  Record<'dependencies' | 'devDependencies' | 'overrides', Readonly<Record<string, string>>>
>;

/**
 * Copies from the checkout what the project depends on besides the packages of Sibyl, with lock files that say so: npm then
 * has nothing to download. Returns false if the checkout has no lock file.
 */
async function copyDependencies(folder: string, signal: AbortSignal): Promise<boolean> {
  const lockFile = join(CHECKOUT, 'package-lock.json');
  if (!existsSync(lockFile)) return false;
  const { lockfileVersion, packages } = JSON.parse(await readFile(lockFile, 'utf8'));
  const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  const needed = selectEntries(packages, manifest);
  const modules = join(folder, 'node_modules');
  const installed: Record<string, LockEntry> = {};
  for (const [path, entry] of Object.entries(needed)) {
    const source = join(CHECKOUT, path);
    // npm unpacks the packages of Sibyl.
    if (entry.resolved || !existsSync(source)) continue;
    installed[path] = entry;
    if (!isTopLevel(path)) continue;
    signal.throwIfAborted();
    const target = join(folder, path);
    await mkdir(dirname(target), { recursive: true });
    await cp(source, target, { recursive: true, mode: constants.COPYFILE_FICLONE });
  }
  await linkCommands(modules, installed);
  const { name, version } = manifest;
  const writeLock = (path: string, entries: object) => {
    const lock = { name, version, lockfileVersion, requires: true, packages: entries };
    return writeFile(path, JSON.stringify(lock, null, 2));
  };
  await writeLock(join(folder, 'package-lock.json'), { '': manifest, ...needed });
  // Last: npm trusts it only if it is newer than all folders.
  await writeLock(join(modules, '.package-lock.json'), installed);
  return true;
}

/** The entries of everything that a project depends on; those of packages of Sibyl name their tarballs. */
function selectEntries(all: LockEntries, manifest: ProjectManifest): LockEntries {
  const { dependencies, devDependencies, overrides } = manifest;
  const selected: Record<string, LockEntry> = {};
  const visit = (name: string, from: string): void => {
    const path = findEntry(all, name, from);
    if (path === undefined || path in selected) return;
    const { folder, entry } = readEntry(all, path);
    const tarball = overrides[name]?.replace('file:./', 'file:');
    selected[path] = folder === path || !tarball ? entry : { ...entry, resolved: tarball };
    for (const each of listNeeds(entry)) visit(each, folder);
  };
  for (const name of Object.keys({ ...dependencies, ...devDependencies })) visit(name, '');
  return selected;
}

/** An entry, or that of the package of the checkout behind it, and the folder where its dependencies are looked for. */
function readEntry(all: LockEntries, path: string) {
  const { link, resolved } = all[path] ?? {};
  const folder = link && resolved ? resolved : path;
  const { devDependencies: _, ...entry } = all[folder] ?? {};
  return { folder, entry };
}

const listNeeds = ({ dependencies, optionalDependencies, peerDependencies }: LockEntry) =>
  Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies });

/** The entry that Node finds from a folder. */
function findEntry(all: LockEntries, name: string, from: string): string | undefined {
  for (let folder = from; ; folder = folder.includes('/') ? dirname(folder) : '') {
    const path = join(folder, 'node_modules', name);
    if (path in all) return path;
    if (folder === '') return undefined;
  }
}

/** Links the commands of packages that were copied; npm installs a package again whose commands are missing. */
async function linkCommands(modules: string, installed: LockEntries): Promise<void> {
  const links = join(modules, '.bin');
  await mkdir(links, { recursive: true });
  for (const [path, { bin = {} }] of Object.entries(installed))
    for (const [name, file] of Object.entries(bin))
      if (isTopLevel(path)) await symlink(join('../..', path, file), join(links, name));
}

/** Packages below another one are copied with it. */
const isTopLevel = (path: string) => path.lastIndexOf('node_modules/') === 0;

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
