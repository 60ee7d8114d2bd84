import type { Facts, FieldFact, MethodFact } from './facts.js';

/** A route of a chain that is known only by its path. */
export interface KnownRoute {
  readonly method: string;
  readonly path: string;
  readonly rpc: string;
}

const VARIABLE = /\{([^{}=]+)(=\*\*)?\}/g;
const REPLY = 'known.Reply';

/** Declares the routes, each with a request that has only the fields in its path, as strings. */
export function readFacts(routes: readonly KnownRoute[]): Facts {
  const messages: Record<string, FieldFact[]> = { [REPLY]: [] };
  const services: Record<string, Record<string, MethodFact>> = {};
  for (const { method, path, rpc } of routes) {
    const [service = '', name = ''] = rpc.split('/');
    const request = `${service}${name}Request`;
    Object.assign(messages, buildRequest(request, readVariables(path)));
    services[service] ??= {};
    services[service][name] = {
      request,
      response: REPLY,
      path,
      verb: method.toLowerCase() as NonNullable<MethodFact['verb']>,
    };
  }
  return { messages, services };
}

export function readVariables(path: string): string[] {
  return [...path.matchAll(VARIABLE)].map(([, name]) => name as string);
}

/** Fields with a dot are in a separate message. */
function buildRequest(type: string, variables: readonly string[]): Record<string, FieldFact[]> {
  const within = (prefix: string) => variables.filter((name) => name.startsWith(`${prefix}.`));
  const tops = [...new Set(variables.map((name) => name.split('.')[0] as string))];
  const nested = tops.filter((name) => within(name).length > 0);
  const text = (name: string, i: number) => ({ no: i + 1, name, type: 'string' });
  return {
    ...Object.fromEntries(
      nested.map((name) => [
        `${type}_${name}`,
        within(name)
          .map((path) => path.slice(name.length + 1))
          .map(text),
      ]),
    ),
    [type]: tops.map((name, i) => ({
      ...text(name, i),
      ...(nested.includes(name) && { type: `${type}_${name}` }),
    })),
  };
}

/** The template as a regular expression: an independent way to match it. */
export function toPattern(path: string): RegExp {
  const source = path.replace(VARIABLE, (_, _name, deep?: string) => (deep ? '(.*)' : '([^/]+)'));
  return new RegExp(`^${source}$`);
}

export function samplePath(path: string): string {
  return path.replace(VARIABLE, (_, name: string, deep?: string) =>
    deep ? 'a/b:c' : `did:x:${name}`,
  );
}

/** Paths whose variables have the literal values of other paths of the same length. */
export function collidingPaths(routes: readonly KnownRoute[]): Set<string> {
  const paths = routes.map(({ path }) => path.split('/'));
  const colliding = new Set<string>();
  for (const path of paths)
    for (const [i, segment] of path.entries()) {
      const others = paths.filter(
        (other) => other.length === path.length && segment.startsWith('{'),
      );
      for (const text of others
        .map((other) => other[i] as string)
        .filter((text) => !text.startsWith('{')))
        colliding.add(samplePath(path.with(i, text).join('/')));
    }
  return colliding;
}
