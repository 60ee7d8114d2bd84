import { globSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';

const read = (name: string) => readFileSync(`packages/cli/template/${name}`, 'utf8');

it('sibyl new decides for pnpm about the same scripts of dependencies as for npm', () => {
  const { allowBuilds } = parse(read('pnpm-workspace.yaml'));
  const [, scripts = ''] = /"allowScripts": (\{.*?\})/s.exec(read('package.json.template')) ?? [];
  expect(allowBuilds).toEqual(JSON.parse(scripts));
});

interface Locked {
  readonly resolved?: string;
  readonly link?: boolean;
  readonly hasInstallScript?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const locked: Readonly<Record<string, Locked>> = JSON.parse(
  readFileSync('package-lock.json', 'utf8'),
).packages;

/** Where npm installs a dependency of the package at a path; undefined if it leaves it out. */
function locate(from: string, name: string): string | undefined {
  for (let folder = from; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf('/')))) {
    const path = `${folder && `${folder}/`}node_modules/${name}`;
    const found = locked[path];
    if (found) return found.link ? found.resolved : path;
    if (!folder) return undefined;
  }
}

/** The packages that an installation of the package at a path contains. */
function listInstalled(path: string, installed = new Set<string>()): Set<string> {
  if (installed.has(path)) return installed;
  installed.add(path);
  const { dependencies, optionalDependencies } = locked[path] ?? {};
  for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
    const found = locate(path, name);
    if (found) listInstalled(found, installed);
  }
  return installed;
}

const published = globSync('{packages,plugins}/*/package.json').filter(
  (path) => !JSON.parse(readFileSync(path, 'utf8')).private,
);

// pnpm fails the installation of a package whose dependencies have install scripts without a decision about them.
it.each(published)('the installation of %s runs no script of a dependency', (manifest) => {
  const installed = listInstalled(manifest.replace('/package.json', ''));
  const withScripts = [...installed].filter((path) => locked[path]?.hasInstallScript);
  expect(withScripts).toEqual([]);
});

it('npm run pack finds Swagger UI in the package that serves it', () => {
  const [name] = globSync('packages/server-kit/swagger-ui/swagger-ui-bundle.js');
  expect(name).toBeDefined();
  const { files } = JSON.parse(readFileSync('packages/server-kit/package.json', 'utf8'));
  expect(files).toContain('swagger-ui');
});
