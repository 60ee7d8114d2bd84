import type { OraclePlugin } from '@sibyl/plugin-kit';
import { nameFault } from '@sibyl/plugin-kit/rules';
import type { BootFault } from '../config/boot-error.js';
import { pluginFault } from './plugin-faults.js';

/** What is wrong with the names of plugins, before anything else of them is looked at. */
export function identityFaults(plugins: readonly OraclePlugin[]): BootFault[] {
  const seen = new Set<string>();
  return plugins.flatMap((plugin, i) => {
    const name: unknown = plugin?.name;
    const fault = nameFault(name) ?? versionFault(plugin) ?? (seen.has(String(name)) && TWICE);
    seen.add(String(name));
    if (!fault) return [];
    const shown = typeof name === 'string' ? name : `number ${i + 1}`;
    return [pluginFault(shown, fault.problem, fault.remedy)];
  });
}

const TWICE = {
  problem: 'there are two plugins of this name',
  remedy: 'Rename one of them or leave it out',
};

function versionFault({ version }: OraclePlugin) {
  if (typeof version === 'string' && version.trim()) return undefined;
  return { problem: 'it has no version', remedy: 'Give it one, such as 1.0.0' };
}
