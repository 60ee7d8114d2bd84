import { definePlugin, defineRoute, findPageUrl, type SetupContext } from '@sibyl/plugin-kit';
import type { RouteError } from '@sibyl/plugin-kit/surface';
import { z } from 'zod';
import type { A2aEndpoint, HttpCall, RestRequest } from './endpoint.js';
import { PushConfigStore, PushNotifications, tables } from './push-notifications.js';

const A2aConfig = z.object({
  A2A_DESCRIPTION: z
    .string()
    .trim()
    .max(1000)
    .default('')
    .describe('What the oracle is for, in its A2A agent card'),
});
type A2aConfig = z.infer<typeof A2aConfig>;

/** Lets other agents give tasks to the oracle, with the Agent2Agent protocol. */
export const a2a = definePlugin({
  name: 'a2a',
  version: '0.1.0',
  manifest: {
    title: 'A2A agent',
    summary: 'Serves other agents with the Agent2Agent protocol.',
    whenToUse: ['never: it has no tools'],
    category: 'integration',
    visibility: 'silent',
  },
  configSchema: A2aConfig,
  tables,
  setup: (context) => new A2aService(context),
  close: ({ push }) => push.close(),
  routes: ({ services }) => [
    createCardRoute(services),
    createRpcRoute(services),
    ...listTaskRoutes(services),
    ...listPushRoutes(services),
  ],
});

class A2aService {
  readonly push: PushNotifications;
  private readonly load: () => Promise<A2aEndpoint>;
  private endpoint: Promise<A2aEndpoint> | undefined;

  constructor(context: SetupContext<A2aConfig>) {
    const { surface, delegatedTurns: turns, publicUrl, oracle, config } = context;
    const store = new PushConfigStore(context.database, context.hosts);
    const pageUrl = findPageUrl(context);
    this.push = new PushNotifications({
      ...context,
      store,
      turns,
      questions: context.turns,
      pageUrl,
    });
    const { name } = oracle;
    const deps = { surface, turns, push: this.push, publicUrl, pageUrl, name };
    this.load = async () => {
      const { A2aEndpoint } = await import('./endpoint.js');
      return new A2aEndpoint({ ...deps, description: config.A2A_DESCRIPTION }, formatError);
    };
  }

  /** The SDK loads with the first request. */
  open(): Promise<A2aEndpoint> {
    this.endpoint ??= this.load();
    return this.endpoint;
  }

  async rest(http: HttpCall, request: RestRequest) {
    return (await this.open()).handleRest(http, request);
  }
}

const A2aObject = z.looseObject({}).meta({ id: 'A2aObject' });
const A2A_JSON = 'application/a2a+json';
const EVENTS = 'text/event-stream';
const VERSION_HEADER = 'a2a-version';
const VERSION_MEANING = 'The version of the protocol: `1.0`';

/** As google.rpc.Status has them in JSON. */
const formatError = ({ status, code, message }: RouteError) => ({
  error: {
    code: status,
    status: STATUSES[status] ?? (status >= 500 ? 'INTERNAL' : 'INVALID_ARGUMENT'),
    message,
    details: [
      {
        '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
        reason: code.toUpperCase(),
        domain: 'sibyl',
      },
    ],
  },
});

const STATUSES: Readonly<Record<number, string>> = {
  401: 'UNAUTHENTICATED',
  402: 'RESOURCE_EXHAUSTED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  409: 'ABORTED',
  413: 'RESOURCE_EXHAUSTED',
  429: 'RESOURCE_EXHAUSTED',
  503: 'UNAVAILABLE',
};

const formatRpcError = (error: RouteError) => ({
  jsonrpc: '2.0',
  id: null,
  error: {
    code: toRpcCode(error.status),
    message: error.message,
    data: formatError(error).error.details,
  },
});

/** As JSON-RPC defines them: an invalid request, an internal error, and those of the server. */
function toRpcCode(status: number): number {
  if (status === 400) return -32600;
  return status >= 500 ? -32603 : -32000;
}

const createCardRoute = (service: A2aService) =>
  defineRoute({
    method: 'GET',
    path: '/.well-known/agent-card.json',
    auth: 'public',
    summary: 'The agent card of the oracle, for A2A clients',
    reply: A2aObject,
    formatError,
    handler: async () => ({ ...(await (await service.open()).getCard()) }),
  });

/** The methods that start turns. */
const SENDING: ReadonlySet<unknown> = new Set(['SendMessage', 'SendStreamingMessage']);

const createRpcRoute = (service: A2aService) =>
  defineRoute({
    method: 'POST',
    path: '/a2a',
    auth: 'access-key',
    summary: 'Agent2Agent protocol 1.0, as JSON-RPC',
    startsWork: ({ method }) => Number(SENDING.has(method)),
    headers: { [VERSION_HEADER]: VERSION_MEANING },
    acceptsFiles: true,
    body: A2aObject,
    acceptsManyValues: true,
    reply: A2aObject,
    mediaTypes: [EVENTS],
    errors: ERRORS,
    formatError: formatRpcError,
    handler: async ({ caller, headers, signal, body }) =>
      (await service.open()).handleRpc({ caller, headers, signal }, body),
  });

const ERRORS = [
  'insufficient_credit',
  'access_key_too_narrow',
  'access_key_used_up',
  'forbidden',
] as const;

const shared = {
  auth: 'access-key',
  headers: {
    [VERSION_HEADER]: { meaning: VERSION_MEANING, schema: z.literal('1.0'), isRequired: true },
  },
  mediaTypes: [A2A_JSON, EVENTS],
  errors: [...ERRORS, 'run_not_found'],
  formatError,
} as const;

const Id = z.string().max(200);
const MessageAction = z.object({ action: z.enum(['message:send', 'message:stream']) });
const TaskView = z.object({
  task: z
    .string()
    .regex(/^[^:]+(:subscribe)?$/)
    .max(200),
});
const TaskAction = z.object({
  task: z
    .string()
    .regex(/^[^:]+:(cancel|subscribe)$/)
    .max(200),
});
const TaskParams = z.object({ taskId: Id });
const ConfigParams = z.object({ taskId: Id, configId: Id });

const ListQuery = z.object({
  contextId: z.string().max(200).optional(),
  status: z.string().max(50).optional(),
  pageSize: z.coerce.number().int().optional(),
  pageToken: z.string().max(100).optional(),
  historyLength: z.coerce.number().int().optional(),
  statusTimestampAfter: z.string().max(100).optional(),
  includeArtifacts: z.stringbool().optional(),
});

const listTaskRoutes = (service: A2aService) => [
  defineRoute({
    ...shared,
    method: 'POST',
    path: '/a2a/:action',
    summary: 'Send a message, and wait for the task or read its events: A2A 1.0, as HTTP and JSON',
    startsWork: true,
    params: MessageAction,
    acceptsFiles: true,
    body: A2aObject,
    acceptsManyValues: true,
    handler: ({ params: { action }, body, ...http }) =>
      service.rest(http, { method: action === 'message:send' ? 'send' : 'stream', body }),
  }),
  defineRoute({
    ...shared,
    method: 'GET',
    path: '/a2a/tasks',
    summary: "The caller's tasks, newest first; not with an access key",
    query: ListQuery,
    handler: ({ query, ...http }) => service.rest(http, { method: 'list', query }),
  }),
  defineRoute({
    ...shared,
    method: 'GET',
    path: '/a2a/tasks/:task',
    summary: 'A task by its id, or with `:subscribe` after the id its events',
    params: TaskView,
    handler: ({ params, ...http }) => {
      const [taskId = '', action] = params.task.split(':');
      return service.rest(http, { method: action ? 'subscribe' : 'get', taskId });
    },
  }),
  defineRoute({
    ...shared,
    method: 'POST',
    path: '/a2a/tasks/:task',
    summary: 'Cancel a task with `:cancel` after its id, or read its events with `:subscribe`',
    params: TaskAction,
    handler: ({ params, ...http }) => {
      const [taskId = '', action] = params.task.split(':');
      return service.rest(http, { method: action === 'cancel' ? 'cancel' : 'subscribe', taskId });
    },
  }),
];

const PUSH_PATH = '/a2a/tasks/:taskId/pushNotificationConfigs';

const listPushRoutes = (service: A2aService) => [
  defineRoute({
    ...shared,
    method: 'POST',
    path: PUSH_PATH,
    summary: 'Have a task posted to an address when it ends or waits',
    params: TaskParams,
    body: A2aObject,
    status: 201,
    handler: ({ params: { taskId }, body, ...http }) =>
      service.rest(http, { method: 'addPush', taskId, body }),
  }),
  defineRoute({
    ...shared,
    method: 'GET',
    path: PUSH_PATH,
    summary: 'Where a task is posted',
    params: TaskParams,
    handler: ({ params: { taskId }, ...http }) =>
      service.rest(http, { method: 'listPush', taskId }),
  }),
  defineRoute({
    ...shared,
    method: 'GET',
    path: `${PUSH_PATH}/:configId`,
    summary: 'One address that a task is posted to',
    params: ConfigParams,
    handler: ({ params: { taskId, configId: id }, ...http }) =>
      service.rest(http, { method: 'getPush', taskId, id }),
  }),
  defineRoute({
    ...shared,
    method: 'DELETE',
    path: `${PUSH_PATH}/:configId`,
    summary: 'Stop posting a task to an address',
    params: ConfigParams,
    otherReplies: { 204: { when: 'It was deleted' } },
    handler: ({ params: { taskId, configId: id }, ...http }) =>
      service.rest(http, { method: 'removePush', taskId, id }),
  }),
];
