import { Readable } from 'node:stream';
import {
  A2A_CONTENT_TYPE,
  A2A_PROTOCOL_VERSION,
  AgentCard,
  type AgentSkill,
  ListTaskPushNotificationConfigsResponse,
  ListTasksRequest,
  ListTasksResponse,
  type SecurityScheme,
  SendMessageRequest,
  SendMessageResponse,
  StreamResponse,
  Task,
  TaskPushNotificationConfig,
} from '@a2a-js/sdk';
import {
  A2AError,
  RequestMalformedError,
  restStatusFor,
  TaskNotCancelableError,
  TaskNotFoundError,
  toJsonRpcError,
  toRestErrorBody,
  UnsupportedOperationError,
  VersionNotSupportedError,
} from '@a2a-js/sdk/errors';
import { JsonRpcTransportHandler } from '@a2a-js/sdk/server';
import { type Caller, OracleError } from '@sibyl/plugin-kit';
import { type RouteError, RouteReply, type SurfacePlugin } from '@sibyl/plugin-kit/surface';
import type { ErrorCode } from '@sibyl/protocol';
import { A2aCall, A2aRequests, type RequestDeps } from './requests.js';

/** A request as the host receives it. */
export interface HttpCall {
  readonly caller: Caller;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/** A request of the REST binding. */
export type RestRequest =
  | { readonly method: 'send'; readonly body: object }
  | { readonly method: 'stream'; readonly body: object }
  | { readonly method: 'list'; readonly query: Readonly<Record<string, unknown>> }
  | { readonly method: 'subscribe'; readonly taskId: string }
  | { readonly method: 'get' | 'cancel' | 'listPush'; readonly taskId: string }
  | { readonly method: 'addPush'; readonly taskId: string; readonly body: object }
  | { readonly method: 'getPush' | 'removePush'; readonly taskId: string; readonly id: string };

/** Serves both bindings of A2A 1.0. */
export class A2aEndpoint {
  private readonly requests: A2aRequests;

  constructor(
    private readonly deps: RequestDeps,
    /** The REST body of an error that the protocol leaves to HTTP. */
    private readonly formatHttpError: (error: RouteError) => object,
  ) {
    this.requests = new A2aRequests(deps, () => buildCard(deps));
  }

  async getCard(): Promise<object> {
    return asObject(AgentCard.toJSON(await this.requests.getAgentCard()));
  }

  /** JSON-RPC: an error of the protocol is a result, and any other has its HTTP status. */
  async handleRpc(http: HttpCall, body: Record<string, unknown>): Promise<RouteReply> {
    const call = this.openCall(http);
    const { id = null } = body;
    const toError = (error: unknown) => ({
      jsonrpc: '2.0',
      id,
      error: toJsonRpcError(toA2aError(error)),
    });
    try {
      assertVersion(http);
      const requests = new WatchedRequests(this.requests);
      const reply = await new JsonRpcTransportHandler(requests.handler).handle(body, call);
      if (!(Symbol.asyncIterator in reply)) {
        if (requests.failure) throw requests.failure;
        return toJsonReply(200, reply, 'application/json');
      }
      const format = (error: OracleError | A2AError) =>
        `data: ${JSON.stringify({ jsonrpc: '2.0', id, error: toJsonRpcError(error) })}\n\n`;
      return await toEventReply(call, reply, format);
    } catch (error) {
      return toJsonReply(200, toError(error), 'application/json');
    }
  }

  async handleRest(http: HttpCall, request: RestRequest): Promise<RouteReply> {
    const call = this.openCall(http);
    const toError = (error: unknown) => {
      const known = toA2aError(error);
      const status = restStatusFor(known);
      return { status, body: toRestErrorBody(known, status) };
    };
    try {
      assertVersion(http);
      if (request.method !== 'stream' && request.method !== 'subscribe')
        return await this.answerRest(call, request);
      const events =
        request.method === 'stream'
          ? this.requests.sendMessageStream(SendMessageRequest.fromJSON(request.body), call)
          : this.requests.resubscribe({ tenant: '', id: request.taskId }, call);
      const format = (error: OracleError | A2AError) => {
        const body =
          error instanceof OracleError
            ? this.formatHttpError(error)
            : toRestErrorBody(error, restStatusFor(error));
        return `event: error\ndata: ${JSON.stringify(body)}\n\n`;
      };
      return await toEventReply(call, mapEvents(events), format);
    } catch (error) {
      const { status, body } = toError(error);
      return toJsonReply(status, body);
    }
  }

  private openCall({ caller, headers, signal }: HttpCall): A2aCall {
    return new A2aCall(this.deps.surface, caller, signal, headers['last-event-id']);
  }

  private async answerRest(
    call: A2aCall,
    request: Exclude<RestRequest, { method: 'stream' | 'subscribe' }>,
  ): Promise<RouteReply> {
    const { requests } = this;
    const tenant = '';
    switch (request.method) {
      case 'send': {
        const value = await requests.sendMessage(SendMessageRequest.fromJSON(request.body), call);
        return toJsonReply(200, SendMessageResponse.toJSON({ payload: { $case: 'task', value } }));
      }
      case 'list': {
        const page = await requests.listTasks(ListTasksRequest.fromJSON(request.query), call);
        const empty = { tasks: [], nextPageToken: '', totalSize: 0 };
        return toJsonReply(200, { ...empty, ...asObject(ListTasksResponse.toJSON(page)) });
      }
      case 'get': {
        const task = await requests.getTask({ tenant, id: request.taskId }, call);
        return toJsonReply(200, Task.toJSON(task));
      }
      case 'cancel': {
        const wanted = { tenant, id: request.taskId, metadata: undefined };
        return toJsonReply(200, Task.toJSON(await requests.cancelTask(wanted, call)));
      }
      case 'addPush': {
        const sent = { ...request.body, taskId: request.taskId };
        const config = TaskPushNotificationConfig.fromJSON(sent);
        const added = await requests.createTaskPushNotificationConfig(config, call);
        return toJsonReply(201, TaskPushNotificationConfig.toJSON(added));
      }
      case 'listPush': {
        const configs = await requests.listTaskPushNotificationConfigs(request, call);
        return toJsonReply(200, ListTaskPushNotificationConfigsResponse.toJSON(configs));
      }
      case 'getPush': {
        const config = await requests.getTaskPushNotificationConfig({ tenant, ...request }, call);
        return toJsonReply(200, TaskPushNotificationConfig.toJSON(config));
      }
      case 'removePush':
        await requests.deleteTaskPushNotificationConfig({ tenant, ...request }, call);
        return new RouteReply({ status: 204 });
    }
  }
}

/** The SDK turns every error into a result; those that are not of the protocol are kept for the host. */
class WatchedRequests {
  failure: unknown;
  readonly handler: A2aRequests;

  constructor(requests: A2aRequests) {
    this.handler = new Proxy(requests, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name);
        if (typeof member !== 'function') return member;
        return (...args: unknown[]) => {
          const result: unknown = Reflect.apply(member, target, args);
          if (result instanceof Promise) result.catch((error) => (this.failure = error));
          return result;
        };
      },
    });
  }
}

/** The SDK declares what it writes as unknown. */
function asObject(json: unknown): object {
  if (typeof json === 'object' && json !== null) return json;
  throw new TypeError('A message of the protocol is an object');
}

/** Absent means 0.3, as the protocol says. */
function assertVersion({ headers }: HttpCall): void {
  const version = headers['a2a-version'] || '0.3';
  if (version === A2A_PROTOCOL_VERSION) return;
  throw new VersionNotSupportedError(
    `A2A ${version} is not supported: send the header A2A-Version: ${A2A_PROTOCOL_VERSION}`,
  );
}

const NOT_FOUND: readonly ErrorCode[] = ['run_not_found', 'session_not_found'];
const CLOSED: readonly ErrorCode[] = [
  'interrupt_not_found',
  'interrupt_closed',
  'approval_not_found',
  'approval_closed',
];

/** The error in the terms of the protocol; throws those that it leaves to HTTP, such as a missing permission. */
function toA2aError(error: unknown): A2AError {
  if (error instanceof A2AError) return error;
  if (!(error instanceof OracleError)) throw error;
  const { code, message, status } = error;
  if (NOT_FOUND.includes(code)) return new TaskNotFoundError(message);
  if (CLOSED.includes(code)) return new UnsupportedOperationError(message);
  if (code === 'not_queued') return new TaskNotCancelableError(message);
  if (status === 400) return new RequestMalformedError(message);
  throw error;
}

function toJsonReply(status: number, body: unknown, type: string = A2A_CONTENT_TYPE): RouteReply {
  const text = JSON.stringify(body);
  const headers = { 'Content-Type': type, 'Content-Length': String(Buffer.byteLength(text)) };
  return new RouteReply({ status, headers, stream: Readable.from([text]) });
}

async function* mapEvents(events: AsyncIterable<StreamResponse>): AsyncGenerator<unknown> {
  for await (const event of events) yield StreamResponse.toJSON(event);
}

type FormatError = (error: OracleError | A2AError) => string;

/** In a stream, HTTP has no status any more for the errors that the protocol leaves to it. */
function toStreamError(error: unknown): OracleError | A2AError {
  try {
    return toA2aError(error);
  } catch (left) {
    if (left instanceof OracleError) return left;
    throw left;
  }
}

/** Server-sent events with their positions. An error before the first event is thrown. */
async function toEventReply(
  call: A2aCall,
  events: AsyncGenerator<unknown>,
  formatError: FormatError,
): Promise<RouteReply> {
  const first = await events.next();
  return RouteReply.events(writeEvents(call, first, events, formatError));
}

async function* writeEvents(
  call: A2aCall,
  first: IteratorResult<unknown>,
  events: AsyncGenerator<unknown>,
  formatError: FormatError,
): AsyncGenerator<string> {
  try {
    for (let next = first; !next.done; next = await events.next()) {
      const id = call.position ? `id: ${call.position}\n` : '';
      yield `${id}data: ${JSON.stringify(next.value)}\n\n`;
    }
  } catch (error) {
    yield formatError(toStreamError(error));
  } finally {
    await events.return(undefined);
  }
}

const VERSION = '0.1.0';
const TEXT = 'text/plain';
const JSON_TYPE = 'application/json';

/** Describes the oracle to other agents: where it is, what it can do, and how to authenticate. */
async function buildCard(deps: RequestDeps): Promise<AgentCard> {
  const { surface, publicUrl, name, description } = deps;
  const url = `${publicUrl}/a2a`;
  const binding = { url, tenant: '', protocolVersion: A2A_PROTOCOL_VERSION };
  return {
    name,
    description: description || `${name} answers questions and does tasks for its users.`,
    supportedInterfaces: [
      { ...binding, protocolBinding: 'JSONRPC' },
      { ...binding, protocolBinding: 'HTTP+JSON' },
    ],
    provider: undefined,
    version: VERSION,
    documentationUrl: `${publicUrl}/docs`,
    capabilities: {
      streaming: true,
      pushNotifications: true,
      extensions: [],
      extendedAgentCard: false,
    },
    securitySchemes: SCHEMES,
    // Any of them.
    securityRequirements: Object.keys(SCHEMES).map((scheme) => {
      return { schemes: { [scheme]: { list: [] } } };
    }),
    defaultInputModes: [TEXT, JSON_TYPE, 'application/octet-stream'],
    defaultOutputModes: [TEXT],
    skills: [CONVERSATION, ...(await surface.listPlugins()).map(toSkill)],
    signatures: [],
  };
}

const SCHEMES: Readonly<Record<string, SecurityScheme>> = {
  accessKey: toBearer('An access key of a user of this oracle', 'access key'),
  accessKeyHeader: {
    scheme: {
      $case: 'apiKeySecurityScheme',
      value: {
        description: 'The same access key in another header',
        location: 'header',
        name: 'x-api-key',
      },
    },
  },
  ucan: toBearer(
    'An invocation that the user signed, as a base64 CAR, with the header X-Auth-Type: ucan',
    'UCAN',
  ),
};

function toBearer(description: string, bearerFormat: string): SecurityScheme {
  const value = { description, scheme: 'Bearer', bearerFormat };
  return { scheme: { $case: 'httpAuthSecurityScheme', value } };
}

const CONVERSATION: AgentSkill = {
  id: 'conversation',
  name: 'Conversation',
  description: 'Answers a message, and remembers the messages of its context.',
  tags: ['chat'],
  examples: [],
  inputModes: [],
  outputModes: [],
  securityRequirements: [],
};

const toSkill = ({ name, title, summary, examples, tags }: SurfacePlugin): AgentSkill => ({
  ...CONVERSATION,
  id: name,
  name: title,
  description: summary,
  tags: tags.length > 0 ? [...tags] : [name],
  examples: [...examples],
});
