import type { OraclePlugin } from '@sibyl/plugin-kit';
import type { BootFault } from '../config/boot-error.js';
import { pluginFault } from './plugin-faults.js';

const NAME = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;
const MAX_NAME_LENGTH = 40;

/** A plugin's users are `did:<name>:<user>`, so it may not have the name of a real DID method. */
const DID_METHODS = ['key', 'ixo', 'web', 'pkh'];

/** A plugin's tables are `<name>_…`, so it may not have a name that the host's own begin with. */
const HOST_TABLES = ['room', 'run', 'single', 'session', 'idempotency', 'kysely'];

const RESERVED: ReadonlySet<string> = new Set([...DID_METHODS, ...HOST_TABLES, 'host', 'main']);

/** What is wrong with the names of plugins, before anything else of them is looked at. */
export function identityFaults(plugins: readonly OraclePlugin[]): BootFault[] {
  const seen = new Set<string>();
  return plugins.flatMap((plugin, i) => {
    const name: unknown = plugin?.name;
    const fault = nameFault(name) ?? versionFault(plugin) ?? (seen.has(String(name)) && TWICE);
    seen.add(String(name));
    if (!fault) return [];
    return [pluginFault(typeof name === 'string' ? name : `number ${i + 1}`, ...fault)];
  });
}

type Fault = readonly [problem: string, remedy: string];

const TWICE: Fault = ['there are two plugins of this name', 'Rename one of them or leave it out'];

function nameFault(name: unknown): Fault | undefined {
  if (typeof name !== 'string' || !NAME.test(name) || name.length > MAX_NAME_LENGTH)
    return [
      'its name is not one',
      `Name it in lower case, digits and "-", in at most ${MAX_NAME_LENGTH} characters`,
    ];
  if (RESERVED.has(name))
    return ['its name is reserved', `Name it otherwise than ${[...RESERVED].join(', ')}`];
  return undefined;
}

function versionFault({ version }: OraclePlugin): Fault | undefined {
  if (typeof version === 'string' && version.trim()) return undefined;
  return ['it has no version', 'Give it one, such as 1.0.0'];
}
