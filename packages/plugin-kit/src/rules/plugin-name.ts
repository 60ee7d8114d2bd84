const NAME = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;
const MAX_LENGTH = 40;

/** A plugin's users are `did:<name>:<user>`, so it may not have the name of a real DID method. */
const DID_METHODS = ['key', 'ixo', 'web', 'pkh'];

/** A plugin's tables are `<name>_…`, so it may not have a name that the host's own begin with. */
const HOST_TABLES = ['room', 'run', 'single', 'session', 'idempotency', 'kysely'];

const RESERVED: ReadonlySet<string> = new Set([...DID_METHODS, ...HOST_TABLES, 'host', 'main']);

/** What is wrong with a plugin's name, and how to mend it. */
export function nameFault(
  name: unknown,
): { readonly problem: string; readonly remedy: string } | undefined {
  if (typeof name !== 'string' || !NAME.test(name) || name.length > MAX_LENGTH)
    return {
      problem: 'its name is not one',
      remedy: `Name it in lower case, digits and "-", in at most ${MAX_LENGTH} characters`,
    };
  if (RESERVED.has(name))
    return {
      problem: 'its name is reserved',
      remedy: `Name it otherwise than ${[...RESERVED].join(', ')}`,
    };
  return undefined;
}
