import type { DescMessage, DescMethod } from '@bufbuild/protobuf';
import { BindError } from '../binding/bind-error.js';
import {
  type BindInput,
  type BindRules,
  type BoundRequest,
  findPageField,
  RequestBinder,
} from '../binding/request-binder.js';
import { JsonWriters, ReplyWriter } from '../json/json-writers.js';
import { DescriptorError, type Descriptors } from '../schema/descriptors.js';
import {
  type HttpBinding,
  type HttpMethod,
  readHttpBindings,
  readSummary,
} from '../schema/options.js';
import { messageAt } from '../upstream/abci-upstream.js';
import { type ChainPrefix, PathTemplate } from './path-template.js';

interface RouteOptions {
  readonly httpMethod: HttpMethod;
  readonly path: PathTemplate;
  readonly template: string;
  /** `*` for the whole request, the name of a field, or empty for none. */
  readonly body: string;
  readonly isServed: boolean;
  readonly binder: RequestBinder;
  readonly writer: ReplyWriter;
}

const BROADCAST = '/cosmos.tx.v1beta1.Service/BroadcastTx';

/** Routes live as long as their schema, so a number identifies one in the cache. */
let routesBuilt = 0;

/** One HTTP binding of one gRPC method. */
export class Route {
  /** `/package.Service/Method`, as gRPC and `abci_query` name it. */
  readonly grpcMethod: string;
  readonly httpMethod: HttpMethod;
  /** The path template under this deployment's prefix. */
  readonly template: string;
  /** The path as the chain declares it. */
  readonly path: PathTemplate;
  /** `*` for the whole request, the name of a field, or empty for none. */
  readonly body: string;
  /** False if the node declares the service but does not serve it. */
  readonly isServed: boolean;
  /** Whether it broadcasts or signs a transaction, which the gateway refuses. */
  readonly isWrite: boolean;
  readonly isDeprecated: boolean;
  /** The method's leading comment, or its name if the descriptors have no comments. */
  readonly summary: string;
  readonly request: DescMessage;
  readonly reply: DescMessage;
  /** Differs from those of all other routes, also of other schemas. */
  readonly key: string;
  /** Whether it queries chain state: modules name such services Query, those of the node are named Service. */
  readonly isState: boolean;
  /** The number of the request's pagination field, if it has one. */
  readonly pageField: number | undefined;
  private readonly nextPage: readonly number[] | undefined;
  private readonly binder: RequestBinder;
  private readonly writer: ReplyWriter;

  constructor(method: DescMethod, deps: RouteOptions) {
    this.grpcMethod = `/${method.parent.typeName}/${method.name}`;
    this.httpMethod = deps.httpMethod;
    this.template = deps.template;
    this.path = deps.path;
    this.body = deps.body;
    this.isServed = deps.isServed;
    this.isWrite = this.grpcMethod === BROADCAST || method.parent.name === 'Msg';
    this.isDeprecated = method.deprecated || method.parent.deprecated;
    this.summary = readSummary(method);
    this.request = method.input;
    this.reply = method.output;
    routesBuilt += 1;
    this.key = routesBuilt.toString(36);
    this.isState = method.parent.name === 'Query';
    this.pageField = findPageField(method.input)?.number;
    this.nextPage = findNextPage(method.output);
    this.binder = deps.binder;
    this.writer = deps.writer;
  }

  /** Whether the reply is a page that others follow. */
  hasNextPage(reply: Uint8Array): boolean {
    return this.nextPage !== undefined && messageAt(reply, this.nextPage).length > 0;
  }

  /** Whether the query key is a field of the request that the path does not bind, by either of its names. */
  takesQueryKey(key: string): boolean {
    return this.binder.takesQueryKey(key);
  }

  /** Whether a node looks at the query of this route. */
  get readsQuery(): boolean {
    return this.binder.readsQuery;
  }

  /** Encodes the request; equal requests have equal bytes in any order of keys. Throws `BindError`. */
  bind(input: BindInput): BoundRequest {
    return this.binder.bind(input);
  }

  /** The reply as the node prints it. Throws `WireError`, and `LongJsonError` if it must be written in steps. */
  write(reply: Uint8Array): Buffer {
    return this.writer.write(reply);
  }

  /** Returns the same bytes as `write`, after steps between which the caller can yield to the event loop. Throws `WireError` and `LongJsonError`. */
  writeInSteps(reply: Uint8Array, maxBytes: number): Generator<void, Buffer> {
    return this.writer.writeInSteps(reply, maxBytes);
  }
}

const PAGE_RESPONSE = 'cosmos.base.query.v1beta1.PageResponse';
/** PageResponse: 1 next_key. */
const NEXT_KEY = 1;

/** The path to the key of the next page in a reply. */
function findNextPage(reply: DescMessage): readonly number[] | undefined {
  const page = reply.fields.find((field) => field.message?.typeName === PAGE_RESPONSE);
  return page && [page.number, NEXT_KEY];
}

export interface RouteSettings {
  readonly prefix: ChainPrefix;
  readonly served: ReadonlySet<string> | undefined;
  readonly rules: BindRules;
}

/** All declared routes in order, and log messages about those that cannot be served. */
export function buildRoutes(descriptors: Descriptors, settings: RouteSettings) {
  const writers = new JsonWriters(settings.rules.registry);
  const routes: Route[] = [];
  const notices: string[] = [];
  for (const method of descriptors.files.flatMap(listMethods))
    for (const binding of readHttpBindings(method))
      try {
        routes.push(buildRoute(method, binding, writers, settings));
      } catch (cause) {
        if (!(cause instanceof DescriptorError || cause instanceof BindError)) throw cause;
        notices.push(`${method.parent.typeName}/${method.name} is not served: ${cause.message}`);
      }
  return { routes, notices };
}

function listMethods(file: Descriptors['files'][number]): DescMethod[] {
  return file.services.flatMap((service) => service.methods);
}

function buildRoute(
  method: DescMethod,
  { httpMethod, template, body }: HttpBinding,
  writers: JsonWriters,
  { prefix, served, rules }: RouteSettings,
): Route {
  if (method.methodKind !== 'unary') throw new DescriptorError('it is a streaming method');
  const path = new PathTemplate(template);
  return new Route(method, {
    httpMethod,
    path,
    body,
    template: prefix.show(template),
    isServed: served === undefined || served.has(method.parent.typeName),
    binder: new RequestBinder({ type: method.input, variables: path.variables, body }, rules),
    writer: new ReplyWriter(writers, method.output),
  });
}
