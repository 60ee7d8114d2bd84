import { createHash } from 'node:crypto';
import { type ApiInfo, openApiDocument } from '../openapi/open-api.js';
import { ChainPrefix } from '../routes/path-template.js';
import { buildRoutes, type Route } from '../routes/route.js';
import { type Match, RouteTable } from '../routes/route-table.js';
import { type DescriptorBytes, readDescriptors, TypeRegistry } from './descriptors.js';

export { BindError, UnknownTypeBindError } from '../binding/bind-error.js';
export { LongJsonError } from '../json/json-sink.js';
export { UnknownTypeError } from '../json/json-writers.js';
export { WireError } from '../json/wire-reader.js';
export type { Route } from '../routes/route.js';
export type { Match } from '../routes/route-table.js';

export interface SchemaOptions {
  /** The prefix of this deployment in place of the chain's own, which remains accepted. */
  readonly prefix?: string | undefined;
  /** Accept the paths of earlier chain versions; such a match has a `successor`. Default: true. */
  readonly legacy?: boolean | undefined;
  /** Full names of the services the node serves; default: all declared ones. */
  readonly served?: ReadonlySet<string> | undefined;
  /** `node` mirrors a node: it parses paths, page limits and base64 exactly as a node does. */
  readonly compat?: 'node' | undefined;
  /** The largest `pagination.limit` that is passed on. Default: 1000. */
  readonly maxPageLimit?: number | undefined;
  /** Further files, for types that occur inside an Any; they are used as far as they fit. */
  readonly others?: Uint8Array | undefined;
}

/**
 * The interface between HTTP and the chain's descriptors: the route of a path, the request's wire
 * bytes, and the reply's JSON. Nothing here calls a node.
 */
export interface Schema {
  /** In order of declaration, which is the order of precedence. */
  readonly routes: readonly Route[];
  /** Equal for equal descriptors, served services and options; differs after an upgrade of the chain. */
  readonly fingerprint: string;
  /** Log messages about declarations that cannot be served. */
  readonly notices: readonly string[];
  /** Log messages about files that cannot be used, since they refer to what is not declared. */
  readonly warnings: readonly string[];
  /** The types of messages; those inside an Any may be added. */
  readonly types: TypeRegistry;
  /**
   * Finds the route of a raw (still percent-encoded) path without its query. HEAD matches as GET; OPTIONS
   * never matches, so its result has `allow`.
   */
  match(httpMethod: string, path: string): Match;
  /** The route of a gRPC method, such as `/ixo.entity.v1beta1.Query/Params`. */
  findRoute(grpcMethod: string): Route | undefined;
}

/**
 * Reads descriptors: either one `FileDescriptorSet` (a node's `FileDescriptors` reply has the same
 * layout) or a list of single `FileDescriptorProto`s, in any order. Throws `DescriptorError`.
 */
export function loadSchema(bytes: DescriptorBytes, options: SchemaOptions = {}): Schema {
  const { legacy = true, served, compat, maxPageLimit = 1000, others } = options;
  const descriptors = readDescriptors(bytes, others);
  const types = new TypeRegistry(descriptors);
  const prefix = new ChainPrefix(options.prefix);
  const rules = { registry: types, compat, maxPageLimit };
  const { routes, notices } = buildRoutes(descriptors, { prefix, served, rules });
  const table = new RouteTable(routes, { prefix, legacy, reading: compat ?? 'exact' });
  const byGrpcMethod = new Map(routes.toReversed().map((route) => [route.grpcMethod, route]));
  return {
    routes,
    fingerprint: computeFingerprint(descriptors.fingerprint, options),
    notices: [...descriptors.notices, ...notices],
    warnings: descriptors.warnings,
    types,
    match: (httpMethod, path) => table.match(httpMethod, path),
    findRoute: (grpcMethod) => byGrpcMethod.get(grpcMethod),
  };
}

function computeFingerprint(descriptors: string, options: SchemaOptions): string {
  const { others: _, ...rest } = options;
  const served = options.served && [...options.served].sort();
  return createHash('sha256')
    .update(JSON.stringify([descriptors, { ...rest, served }]))
    .digest('hex');
}

/** The schema's routes as an OpenAPI 3.1 document. */
export function buildOpenApi(schema: Schema, info: ApiInfo) {
  return openApiDocument(schema.routes, info);
}
