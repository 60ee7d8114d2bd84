import { definePlugin, defineRoute, findPageUrl } from '@sibyl/plugin-kit';
import type { Surface } from '@sibyl/plugin-kit/surface';
import { type ChatDeps, completeChat } from './chat-completions.js';
import { Responses } from './responses.js';
import {
  ChatRequest,
  formatError,
  OpenAiModels,
  OpenAiObject,
  ResponseRequest,
  RetrieveQuery,
} from './schemas.js';
import { ResponseStore, tables } from './stored-responses.js';
import { DEFAULT_MODEL, findModel } from './turn.js';

const KEY_HEADER = 'idempotency-key';

/** Lets clients of OpenAI's API talk to the oracle. */
export const openaiApi = definePlugin({
  name: 'openai-api',
  version: '0.1.0',
  manifest: {
    title: 'OpenAI API',
    summary: 'Serves clients of the OpenAI API.',
    whenToUse: ['never: it has no tools'],
    category: 'integration',
    visibility: 'silent',
  },
  tables,
  setup: (context) => {
    const { surface, database } = context;
    const pageUrl = findPageUrl(context);
    const store = new ResponseStore(database);
    return { surface, pageUrl, responses: new Responses({ surface, pageUrl, store }) };
  },
  routes: ({ services: { surface, pageUrl, responses } }) => [
    ...listModelRoutes(surface),
    createChatRoute({ surface, pageUrl }),
    ...listResponseRoutes(responses),
  ],
});

const shared = { auth: 'access-key', formatError } as const;

const toModel = (id: string) => ({ id, object: 'model', created: 0, owned_by: 'oracle' });

const listModelRoutes = (surface: Surface) => [
  defineRoute({
    ...shared,
    method: 'GET',
    path: '/v1/models',
    summary: 'The models of the oracle, as OpenAI lists models',
    reply: OpenAiModels,
    handler: () => ({
      object: 'list' as const,
      data: [DEFAULT_MODEL, ...surface.models.map(({ id }) => id)].map(toModel),
    }),
  }),
  defineRoute({
    ...shared,
    method: 'GET',
    path: '/v1/models/:model',
    summary: 'One model of the oracle',
    reply: OpenAiObject,
    errors: ['not_found'],
    handler: ({ params: { model } }) => {
      return toModel(findModel(surface, model));
    },
  }),
];

const createChatRoute = (deps: ChatDeps) =>
  defineRoute({
    ...shared,
    method: 'POST',
    path: '/v1/chat/completions',
    summary: 'OpenAI chat completions: JSON, or a stream if `stream` is true',
    startsWork: true,
    acceptsFiles: true,
    body: ChatRequest,
    acceptsManyValues: true,
    reply: OpenAiObject,
    mediaTypes: ['text/event-stream'],
    errors: ['not_found', 'insufficient_credit', 'access_key_too_narrow', 'access_key_used_up'],
    handler: async ({ caller, body, headers, signal }) => {
      const call = { caller, body, idempotencyKey: headers[KEY_HEADER], signal };
      return completeChat(deps, call);
    },
  });

const listResponseRoutes = (responses: Responses) => [
  defineRoute({
    ...shared,
    method: 'POST',
    path: '/v1/responses',
    summary: 'OpenAI responses: JSON, or a stream if `stream` is true',
    startsWork: true,
    acceptsFiles: true,
    body: ResponseRequest,
    acceptsManyValues: true,
    reply: OpenAiObject,
    mediaTypes: ['text/event-stream'],
    errors: ['not_found', 'insufficient_credit', 'access_key_too_narrow', 'access_key_used_up'],
    handler: async ({ caller, body, headers, signal }) => {
      const call = { caller, body, idempotencyKey: headers[KEY_HEADER], signal };
      return responses.create(call);
    },
  }),
  defineRoute({
    ...shared,
    method: 'GET',
    path: '/v1/responses/:id',
    summary: 'A response; with `stream`, its events after `starting_after`',
    query: RetrieveQuery,
    reply: OpenAiObject,
    mediaTypes: ['text/event-stream'],
    errors: ['not_found'],
    handler: ({ caller, params: { id }, query, signal }) =>
      responses.retrieve({ caller, signal }, id, query),
  }),
  defineRoute({
    ...shared,
    method: 'POST',
    path: '/v1/responses/:id/cancel',
    summary: 'Cancel a response that is in progress',
    reply: OpenAiObject,
    errors: ['not_found'],
    handler: ({ caller, params: { id }, signal }) => responses.cancel({ caller, signal }, id),
  }),
  defineRoute({
    ...shared,
    method: 'DELETE',
    path: '/v1/responses/:id',
    summary: 'Delete a response',
    reply: OpenAiObject,
    errors: ['not_found'],
    handler: ({ caller, params: { id }, signal }) => responses.delete({ caller, signal }, id),
  }),
];
