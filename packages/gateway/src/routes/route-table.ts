import type { ChainPrefix } from './chain-prefix.js';
import { LEGACY_PATHS } from './legacy-paths.js';
import { NearestTemplates } from './nearest-templates.js';
import { PathTemplate } from './path-template.js';
import type { Route } from './route.js';
import { RouteTree } from './route-tree.js';
import { type PathReading, splitPath } from './split-path.js';

export type Match =
  | {
      readonly kind: 'route';
      readonly route: Route;
      readonly params: PathParams;
      /** Set on legacy paths: the path to use instead, for `Link: <…>; rel="successor-version"`. */
      readonly successor?: string;
    }
  | { readonly kind: 'not_found'; readonly nearest: readonly string[] }
  | { readonly kind: 'method_not_allowed'; readonly allow: readonly string[] }
  /** The path itself is broken, as in a bad percent escape. */
  | { readonly kind: 'malformed'; readonly message: string };

/** Decoded values of the template's variables, by their dotted field path. */
export type PathParams = ReadonlyMap<string, string>;

interface TableOptions {
  readonly prefix: ChainPrefix;
  readonly reading: PathReading;
  readonly legacy: boolean;
}

/** A way to a route: by its own path, or by one that is no longer declared. */
interface Entry {
  readonly route: Route;
  readonly path: PathTemplate;
  readonly isLegacy: boolean;
}

/** Finds routes by path. */
export class RouteTable {
  readonly #trees = new Map<string, RouteTree<Entry>>();
  readonly #options: TableOptions;
  readonly #nearest: NearestTemplates;

  constructor(routes: readonly Route[], options: TableOptions) {
    this.#options = options;
    this.#nearest = new NearestTemplates(routes.map((route) => route.path));
    const legacy = options.legacy ? legacyEntries(routes) : [];
    const isLiteral = ({ path }: Entry) => path.variables.length === 0;
    for (const entry of [
      ...legacy.filter(isLiteral),
      ...routes.map((route) => ({ route, path: route.path, isLegacy: false })),
      ...legacy.filter((entry) => !isLiteral(entry)),
    ])
      this.#add(entry);
  }

  match(httpMethod: string, path: string): Match {
    const segments = splitPath(path, this.#options.reading);
    if (!segments) return { kind: 'malformed', message: 'The path has a bad percent escape' };
    const declared = this.#options.prefix.declared(segments);
    const method = httpMethod === 'HEAD' ? 'GET' : httpMethod;
    for (const way of declared ? [segments, declared] : [segments]) {
      const entry = this.#trees.get(method)?.find(way);
      if (entry) return this.#found(entry, way);
    }
    return this.#missed(segments, declared ?? segments);
  }

  #add(entry: Entry): void {
    const { httpMethod } = entry.route;
    const tree = this.#trees.get(httpMethod) ?? new RouteTree<Entry>();
    tree.add(entry.path.steps, entry);
    this.#trees.set(httpMethod, tree);
  }

  #found({ route, path, isLegacy }: Entry, segments: readonly string[]): Match {
    const params = path.read(segments);
    if (!isLegacy) return { kind: 'route', route, params };
    const successor = this.#options.prefix.show(route.path.fill(params));
    return { kind: 'route', route, params, successor };
  }

  #missed(segments: readonly string[], declared: readonly string[]): Match {
    const allow = [...this.#trees]
      .filter(([, tree]) => tree.find(segments) ?? tree.find(declared))
      .flatMap(([method]) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    if (allow.length > 0) return { kind: 'method_not_allowed', allow: [...allow, 'OPTIONS'] };
    const nearest = this.#nearest.find(declared);
    return {
      kind: 'not_found',
      nearest: nearest.map(({ text }) => this.#options.prefix.show(text)),
    };
  }
}

/** The legacy paths whose successor is declared and that are not declared themselves. */
function legacyEntries(routes: readonly Route[]): Entry[] {
  const declared = new Map(
    routes
      .filter(({ httpMethod }) => httpMethod === 'GET')
      .map((route) => [route.path.text, route]),
  );
  return LEGACY_PATHS.flatMap(([legacy, successor]) => {
    const route = declared.get(successor);
    if (!route || declared.has(legacy)) return [];
    return [{ route, path: new PathTemplate(legacy), isLegacy: true }];
  });
}
