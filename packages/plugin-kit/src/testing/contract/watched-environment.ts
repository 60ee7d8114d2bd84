/** Names of variables that were read from the process while work was done. */
export async function readVariablesOf(
  names: readonly string[],
  work: () => Promise<void>,
): Promise<string[]> {
  const read = new Set<string>();
  const watched = new Set(names);
  // biome-ignore lint/style/noProcessEnv: this is where it is watched whether anybody reads it.
  const own = process.env;
  const note = (name: string | symbol) => {
    if (typeof name === 'string' && watched.has(name)) read.add(name);
  };
  const handler: ProxyHandler<NodeJS.ProcessEnv> = {
    get: (env, name) => {
      note(name);
      return Reflect.get(env, name);
    },
    has: (env, name) => {
      note(name);
      return Reflect.has(env, name);
    },
  };
  process.env = new Proxy(own, handler);
  try {
    await work();
  } finally {
    process.env = own;
  }
  return [...read];
}
