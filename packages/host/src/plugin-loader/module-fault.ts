import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { BootError } from '../config/boot-error.js';
import { pluginFault, reasonOf, switchOff } from './plugin-faults.js';

/** What Nest could not build, told as a fault of the plugin whose module it names; else as it is. */
export function moduleFault(error: unknown, plugins: readonly LoadedPlugin[]): unknown {
  const reason = reasonOf(error).split('\n', 1)[0] ?? '';
  const plugin = plugins.find(({ nestModules }) =>
    nestModules.some((module) => isNamedIn(reason, 'module' in module ? module.module : module)),
  );
  if (!plugin) return error;
  const problem = `its Nest modules could not be built: ${reason}`;
  return new BootError([
    pluginFault(plugin.name, problem, `Mend it, or ${switchOff(plugin.name)}`),
  ]);
}

const isNamedIn = (text: string, { name }: { readonly name: string }) =>
  name !== '' && text.includes(name);
