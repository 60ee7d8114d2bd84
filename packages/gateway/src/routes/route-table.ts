import {
  type ChainPrefix,
  NearestTemplates,
  type PathReading,
  PathTemplate,
  type Step,
  splitPath,
} from './path-template.js';
import type { Route } from './route.js';

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
  /** The path is malformed, such as a bad percent escape. */
  | { readonly kind: 'malformed'; readonly message: string };

/** Decoded values of the template's variables, by their dotted field path. */
export type PathParams = ReadonlyMap<string, string>;

interface TableOptions {
  readonly prefix: ChainPrefix;
  readonly reading: PathReading;
  readonly legacy: boolean;
}

/** A path of a route: the declared one or a legacy one. */
interface Entry {
  readonly route: Route;
  readonly path: PathTemplate;
  readonly isLegacy: boolean;
}

/** Finds routes by path. */
export class RouteTable {
  private readonly trees = new Map<string, RouteTree<Entry>>();
  private readonly options: TableOptions;
  private readonly nearest: NearestTemplates;

  constructor(routes: readonly Route[], options: TableOptions) {
    this.options = options;
    this.nearest = new NearestTemplates(routes.map((route) => route.path));
    const legacy = options.legacy ? legacyEntries(routes) : [];
    const isLiteral = ({ path }: Entry) => path.variables.length === 0;
    for (const entry of [
      ...legacy.filter(isLiteral),
      ...routes.map((route) => ({ route, path: route.path, isLegacy: false })),
      ...legacy.filter((entry) => !isLiteral(entry)),
    ])
      this.add(entry);
  }

  match(httpMethod: string, path: string): Match {
    const segments = splitPath(path, this.options.reading);
    if (!segments) return { kind: 'malformed', message: 'The path has a bad percent escape' };
    const tree = this.trees.get(httpMethod === 'HEAD' ? 'GET' : httpMethod);
    const entry = tree?.find(segments);
    if (entry) return this.found(entry, segments);
    const declared = this.options.prefix.declared(segments);
    const renamed = declared && tree?.find(declared);
    if (renamed) return this.found(renamed, declared);
    return this.missed(segments, declared ?? segments);
  }

  private add(entry: Entry): void {
    const { httpMethod } = entry.route;
    const isNode = this.options.reading === 'node';
    const tree = this.trees.get(httpMethod) ?? new RouteTree<Entry>(isNode);
    tree.add(entry.path.steps, entry);
    this.trees.set(httpMethod, tree);
  }

  private found({ route, path, isLegacy }: Entry, segments: readonly string[]): Match {
    const params = path.read(segments);
    if (!isLegacy) return { kind: 'route', route, params };
    const successor = this.options.prefix.show(route.path.fill(params));
    return { kind: 'route', route, params, successor };
  }

  private missed(segments: readonly string[], declared: readonly string[]): Match {
    const allow = [...this.trees]
      .filter(([, tree]) => tree.find(segments) ?? tree.find(declared))
      .flatMap(([method]) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    if (allow.length > 0) return { kind: 'method_not_allowed', allow: [...allow, 'OPTIONS'] };
    const nearest = this.nearest.find(declared);
    return {
      kind: 'not_found',
      nearest: nearest.map(({ text }) => this.options.prefix.show(text)),
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

/**
 * Paths of earlier versions of the chain and their successors. Those without a variable come
 * before what the chain declares, or `/ixo/entity/{id}` would take `/ixo/entity/config` for an id.
 */
export const LEGACY_PATHS: readonly (readonly [legacy: string, successor: string])[] = [
  ['/ixo/claim', '/ixo/claims/claims'],
  ['/ixo/claim/{id}', '/ixo/claims/claim/{id}'],
  ['/ixo/collection', '/ixo/claims/collections'],
  ['/ixo/collection/{id}', '/ixo/claims/collection/{id}'],
  ['/ixo/dispute', '/ixo/claims/disputes'],
  ['/ixo/dispute/{proof}', '/ixo/claims/dispute/{proof}'],
  ['/ixo/token/config', '/ixo/token/params'],
  ['/ixo/token/{minter}', '/ixo/token/minter/{minter}'],
  ['/ixo/token/{minter}/{contract_address}', '/ixo/token/minter/{minter}/{contract_address}'],
  ['/ixo/did', '/ixo/did/dids'],
  ['/ixo/did/{id}', '/ixo/did/dids/{id}'],
  ['/ixo/allDidDocs', '/ixo/did/dids'],
  ['/did', '/ixo/did/dids'],
  ['/did/{id}', '/ixo/did/dids/{id}'],
  ['/allDidDocs', '/ixo/did/dids'],
  ['/ixo/bonds', '/ixo/bonds/bonds'],
  ['/ixo/bonds_detailed', '/ixo/bonds/bonds_detailed'],
  ['/ixo/entity/config', '/ixo/entity/params'],
];

/** A node of the prefix tree. */
interface Node<T> {
  readonly texts: Map<string, Node<T>>;
  one: Node<T> | undefined;
  /** Paths that continue with any number of segments and then these steps. */
  readonly many: { readonly tail: readonly Step[]; readonly end: End<T> }[];
  end: End<T> | undefined;
  /** The earliest declaration below this point. */
  earliest: number;
}

interface End<T> {
  readonly order: number;
  readonly value: T;
}

/** Finds the first added value whose steps match a path. */
export class RouteTree<T> {
  private readonly root: Node<T> = newNode();
  private size = 0;

  /** On a node, a variable may be an empty segment. */
  constructor(private readonly matchesEmpty = false) {}

  add(steps: readonly Step[], value: T): void {
    const end = { order: this.size, value };
    this.size += 1;
    let node = this.root;
    for (const [i, step] of steps.entries()) {
      node.earliest = Math.min(node.earliest, end.order);
      if (step === 'many') {
        node.many.push({ tail: steps.slice(i + 1), end });
        return;
      }
      node = nextNode(node, step);
    }
    node.earliest = Math.min(node.earliest, end.order);
    node.end ??= end;
  }

  find(segments: readonly string[]): T | undefined {
    const path = { segments, matchesEmpty: this.matchesEmpty };
    return search(this.root, path, 0, undefined)?.value;
  }
}

function newNode<T>(): Node<T> {
  return { texts: new Map(), one: undefined, many: [], end: undefined, earliest: Infinity };
}

function nextNode<T>(node: Node<T>, step: Exclude<Step, 'many'>): Node<T> {
  if (step === 'one') {
    node.one ??= newNode();
    return node.one;
  }
  const known = node.texts.get(step.text);
  if (known) return known;
  const next = newNode<T>();
  node.texts.set(step.text, next);
  return next;
}

interface SearchedPath {
  readonly segments: readonly string[];
  readonly matchesEmpty: boolean;
}

/** The earliest matching end from here on, if it is earlier than the current best. */
function search<T>(
  node: Node<T>,
  path: SearchedPath,
  at: number,
  best: End<T> | undefined,
): End<T> | undefined {
  const { segments, matchesEmpty } = path;
  if (best && best.order < node.earliest) return best;
  let found = best;
  if (node.end && at === segments.length) found = earlier(found, node.end);
  for (const { tail, end } of node.many)
    if (fitsAtEnd(tail, segments, at)) found = earlier(found, end);
  const segment = segments[at];
  if (segment === undefined) return found;
  const next = node.texts.get(segment);
  if (next) found = search(next, path, at + 1, found);
  if (node.one && (segment !== '' || matchesEmpty)) found = search(node.one, path, at + 1, found);
  return found;
}

function earlier<T>(best: End<T> | undefined, end: End<T>): End<T> {
  return best && best.order < end.order ? best : end;
}

function fitsAtEnd(tail: readonly Step[], segments: readonly string[], at: number): boolean {
  const start = segments.length - tail.length;
  if (start < at) return false;
  return tail.every(
    (step, i) => step === 'one' || (step !== 'many' && step.text === segments[start + i]),
  );
}
