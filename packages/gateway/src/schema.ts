/**
 * The seam between HTTP and the chain's descriptors: which route a path names, the request's wire
 * bytes for it, and the reply's JSON. Nothing here talks to a node.
 */
export interface SchemaOptions {
  /** The prefix this deployment shows instead of the chain's own, which stays accepted. */
  readonly prefix?: string;
  /** Accept the paths of earlier chain versions; such a match has a `successor`. Default: true. */
  readonly legacy?: boolean;
  /** Full names of the services the node really serves; unset: all that are declared. */
  readonly served?: ReadonlySet<string>;
  /** `node` mirrors the node: paths, page limits and base64 exactly as it takes them. */
  readonly compat?: 'node';
  /** The largest `pagination.limit` that is passed on. Default: 1000. */
  readonly maxPageLimit?: number;
}

export interface Schema {
  /** In order of declaration, which is the order of precedence. */
  readonly routes: readonly Route[];
  /** Equal for equal descriptors, served services and options; differs after an upgrade of the chain. */
  readonly fingerprint: string;
  /** Sentences on what was declared and could not be used, for the log. */
  readonly notices: readonly string[];
  /**
   * Finds the route of a raw (still percent-encoded) path without its query. HEAD matches as GET; OPTIONS
   * never matches, so its answer carries `allow`.
   */
  match(httpMethod: string, path: string): Match;
  /** The route of a gRPC method, such as `/ixo.entity.v1beta1.Query/Params`. */
  routeOf(grpcMethod: string): Route | undefined;
}

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

export interface Route {
  /** `/package.Service/Method`, as gRPC and `abci_query` name it. */
  readonly grpcMethod: string;
  readonly httpMethod: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** The path template under this deployment's prefix. */
  readonly template: string;
  /** Declared, but not compiled into this node when false. */
  readonly isServed: boolean;
  /** Broadcasts or signs a transaction, which a query gateway refuses. */
  readonly isWrite: boolean;
  readonly isDeprecated: boolean;
  /** The method's leading comment, or its name where descriptors carry no comments. */
  readonly summary: string;
  /** Whether the query key is a field of the request that the path does not bind, by either of its names. */
  takesQueryKey(key: string): boolean;
  /** The request's wire bytes, equal for equal requests whatever the order of keys. Throws `BindFault`. */
  bind(input: BindInput): Uint8Array;
  /** The reply as the node prints it. Throws `WireFault`. */
  write(reply: Uint8Array): Buffer;
  /** The same bytes as `write`, in slices between which the caller may let others run. Throws `WireFault`. */
  slices(reply: Uint8Array): Iterable<Buffer>;
}

export interface BindInput {
  readonly params: PathParams;
  readonly query: URLSearchParams;
  /** The JSON text of a POST. */
  readonly body?: Uint8Array | undefined;
}

/** The request does not fit the method's message; the message names the field. Answer: 400. */
export declare class BindFault extends Error {
  readonly field: string;
}

/** The node's reply does not fit its descriptors: malformed wire, or an Any of unknown type. Answer: 500. */
export declare class WireFault extends Error {}

/**
 * Reads descriptors: either one `FileDescriptorSet` (a node's `FileDescriptors` reply has the same
 * layout) or a list of single `FileDescriptorProto`s, in any order. Throws `DescriptorFault`.
 */
export declare function loadSchema(
  descriptors: Uint8Array | readonly Uint8Array[],
  options?: SchemaOptions,
): Schema;

/** The descriptors are unreadable or incomplete; the message names the file. */
export declare class DescriptorFault extends Error {}

/** The schema's routes as an OpenAPI 3.1 document. */
export declare function openApiOf(
  schema: Schema,
  info: { readonly title: string; readonly version: string },
): Record<string, unknown>;
