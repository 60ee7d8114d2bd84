import assert from 'node:assert/strict';
import { PluginManifest } from '../../manifest.js';
import { nameFault } from '../../rules/plugin-name.js';
import type { ContractTest, Trial } from './trial.js';

const VARIABLE = /^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$/;
const VERSION = /^\d+\.\d+\.\d+/;

/** What a plugin says of itself. */
export const identityTests = ({ plugin }: Trial): ContractTest[] => [
  {
    name: 'has a name, a version and a manifest that a host accepts',
    run: async () => {
      assert.equal(nameFault(plugin.name)?.problem, undefined);
      assert.match(plugin.version, VERSION);
      const manifest = PluginManifest.parse(plugin.manifest);
      const isKnown = manifest.visibility !== 'silent';
      if (isKnown) assert.ok(manifest.whenToUse.length > 0, 'whenToUse tells the agent nothing');
    },
  },
  {
    name: 'depends on plugins by name, and not on itself',
    run: async () => {
      for (const name of [...(plugin.dependsOn ?? []), ...(plugin.softDependsOn ?? [])]) {
        assert.equal(nameFault(name)?.problem, undefined, name);
        assert.notEqual(name, plugin.name);
      }
    },
  },
  {
    name: 'says of each of its variables what it is for',
    run: async () => {
      for (const [name, schema] of Object.entries(plugin.configSchema?.shape ?? {})) {
        assert.match(name, VARIABLE);
        assert.ok(schema.description, `${name} has no description`);
      }
    },
  },
  {
    name: 'can tell from any environment whether it loads, and says what it misses',
    run: async () => {
      if (!plugin.autoDetect) return;
      const names = Object.keys(plugin.configSchema?.shape ?? {});
      const odd = ['', ' ', 'true', 'false', '\u0000', '{', 'x'.repeat(10_000)];
      const environments = odd.map((value) => Object.fromEntries(names.map((n) => [n, value])));
      for (const env of [{}, ...environments])
        assert.equal(typeof plugin.autoDetect(env), 'boolean');
      assert.ok(plugin.autoDetectHint, 'autoDetectHint is missing');
    },
  },
];
