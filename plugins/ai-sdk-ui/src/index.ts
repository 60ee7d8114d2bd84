import { definePlugin, defineRoute, findPageUrl } from '@sibyl/plugin-kit';
import { RouteReply, type RouteRequest, readAnswer, type Surface } from '@sibyl/plugin-kit/surface';
import { answerChat, ChatRequest, type OpenedChat } from './chat.js';
import { toChunks } from './ui-stream.js';

/** Lets `useChat` of the AI SDK, and clients of its protocol, talk to the oracle. */
export const aiSdkUi = definePlugin({
  name: 'ai-sdk-ui',
  version: '0.1.0',
  manifest: {
    title: 'AI SDK UI',
    summary: 'Serves useChat and other clients of the UI message stream.',
    whenToUse: ['never: it has no tools'],
    category: 'integration',
    visibility: 'silent',
  },
  setup: (context) => ({ surface: context.surface, pageUrl: findPageUrl(context) }),
  routes: ({ services }) => [createChatRoute(services), ...listStreamRoutes(services)],
});

interface UiDeps {
  readonly surface: Surface;
  readonly pageUrl: string;
}

/** `useChat` shows the body of an error to the user. */
const formatError = ({ message }: { readonly message: string }) => message;

const shared = { auth: 'access-key', formatError } as const;
const STREAM = '/ui/chat/:id/stream';

const createChatRoute = ({ surface, pageUrl }: UiDeps) =>
  defineRoute({
    ...shared,
    method: 'POST',
    path: '/ui/chat',
    summary: 'Answer a chat of the AI SDK as a UI message stream',
    startsWork: true,
    acceptsFiles: true,
    body: ChatRequest,
    acceptsManyValues: true,
    mediaTypes: ['text/event-stream'],
    errors: [
      'not_found',
      'insufficient_credit',
      'access_key_too_narrow',
      'access_key_used_up',
      'decision_unsigned',
    ],
    handler: async ({ caller, body, signal }) => {
      const turns = surface.for(caller, signal);
      const chat = await answerChat(turns, body, pageUrl);
      return reply({ turns, pageUrl, signal }, chat);
    },
  });

const listStreamRoutes = ({ surface, pageUrl }: UiDeps) => [
  defineRoute({
    ...shared,
    method: 'GET',
    path: STREAM,
    summary: 'The answer of a chat that is in progress, from its beginning',
    mediaTypes: ['text/event-stream'],
    otherReplies: { 204: { when: 'Nothing is running' } },
    handler: async ({ caller, params: { id }, signal }) => {
      const turns = surface.for(caller);
      const run = await findRunning(turns, id);
      if (!run) return new RouteReply({ status: 204 });
      return reply({ turns, pageUrl, signal }, { run });
    },
  }),
  defineRoute({
    ...shared,
    method: 'DELETE',
    path: STREAM,
    summary: 'Stop the answer of a chat: a client that only disconnects does not stop it',
    status: 204,
    handler: async ({ caller, params: { id } }) => {
      const turns = surface.for(caller);
      const sessionId = await turns.findThread(id);
      if (sessionId !== undefined) await turns.abort(sessionId);
      return new RouteReply({ status: 204 });
    },
  }),
];

type Turns = ReturnType<Surface['for']>;

async function findRunning(turns: Turns, id: string) {
  const sessionId = await turns.findThread(id);
  const run = sessionId === undefined ? undefined : await turns.currentRun(sessionId);
  return run?.status === 'running' || run?.status === 'queued' ? run : undefined;
}

interface ReplyDeps {
  readonly turns: Turns;
  readonly pageUrl: string;
  readonly signal: RouteRequest<'user', unknown, unknown, unknown>['signal'];
}

function reply({ turns, pageUrl, signal }: ReplyDeps, chat: OpenedChat): RouteReply {
  const { run } = chat;
  const pending = () => turns.pending(run.sessionId);
  const chunks = toChunks(readAnswer(turns, run, signal), { ...chat, pending, pageUrl });
  return RouteReply.events(toEvents(chunks), { 'x-vercel-ai-ui-message-stream': 'v1' });
}

async function* toEvents(chunks: AsyncIterable<object>): AsyncGenerator<string> {
  for await (const chunk of chunks) yield `data: ${JSON.stringify(chunk)}\n\n`;
  yield 'data: [DONE]\n\n';
}
