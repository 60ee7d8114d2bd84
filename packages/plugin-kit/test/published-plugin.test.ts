import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8');

it('the package.json of docs/plugins.md has the peers and the version of @sibyl/plugin-kit', () => {
  const [, section = ''] = read('../../../docs/plugins.md').split('## Publishing a plugin');
  const [, text = ''] = /```json\n(.*?)```/s.exec(section) ?? [];
  const { peerDependencies, devDependencies } = JSON.parse(text);
  const { name, version, peerDependencies: ofKit } = JSON.parse(read('../package.json'));
  // Only plugins with Nest modules import it.
  const { '@nestjs/common': _, ...peers } = ofKit;
  expect(peerDependencies).toEqual({ [name]: `^${version}`, ...peers });
  expect(devDependencies[name]).toBe(version);
});
