import { describe, expect, it } from 'vitest';
import { loadSchema, type Route } from '../../src/schema/schema.js';
import { descriptorSet } from './descriptor-set.js';
import {
  collidingPaths,
  type KnownRoute,
  readFacts,
  samplePath,
  toPattern,
} from './known-routes.js';
import { referenceFile } from './reference-file.js';
import { decode } from './slow/decode.js';

const FILE = 'ixo-routes.json';
const known = referenceFile<KnownRoute[]>(FILE);
const title = `the routes of a real chain, from ${FILE} (${known ? 'found' : 'NOT FOUND: not run'})`;

describe.skipIf(!known)(title, () => {
  const routes = (known ?? []).map((route) => ({ ...route, pattern: toPattern(route.path) }));
  const schema = loadSchema(descriptorSet(readFacts(routes)), { legacy: false });

  it('are 271, and all of them are understood', () => {
    expect(routes).toHaveLength(271);
    expect(schema.notices).toEqual([]);
    const named = ({ httpMethod, template, grpcMethod }: Route) =>
      `${httpMethod} ${template} ${grpcMethod}`;
    expect(schema.routes.map(named)).toEqual(
      routes.map(({ method, path, rpc }) => `${method} ${path} /${rpc}`),
    );
  });

  it.each(routes)('$method $path', ({ method, path }) => {
    expectFirst(method, samplePath(path));
  });

  it('prefer literal segments over variables', () => {
    const paths = collidingPaths(routes);
    expect(paths.size).toBeGreaterThan(300);
    for (const path of paths) expectFirst('GET', path);
  });

  /** The match is the first declared route whose template, read as a pattern, fits. */
  function expectFirst(method: string, path: string): void {
    const first = routes.find((route) => route.method === method && route.pattern.test(path));
    const match = schema.match(method, path);
    if (match.kind !== 'route' || !first) {
      expect([match.kind === 'route', first], path).toEqual([false, undefined]);
      return;
    }
    expect(match.route.grpcMethod, path).toBe(`/${first.rpc}`);
    const values = first.pattern.exec(path)?.slice(1) ?? [];
    expect([...match.params.values()], path).toEqual(values);
    const { message: request } = match.route.bind({
      params: match.params,
      query: new URLSearchParams(),
    });
    expect(readTexts(request, first.path.includes('{packet_id.')), path).toEqual(values);
  }
});

/** The texts of a request, in order of their numbers. */
function readTexts(request: Uint8Array, isNested: boolean): string[] {
  const fields = decode(request).map(({ value }) => value as Uint8Array);
  if (isNested) return fields.flatMap((inner) => readTexts(inner, false));
  return fields.map((text) => Buffer.from(text).toString());
}
