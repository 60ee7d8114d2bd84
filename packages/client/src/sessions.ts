import type {
  Feedback,
  Message,
  MessageList,
  MessagePage,
  PageMessages,
  Reply,
  ReplyPart,
  Run,
  Session,
  SessionPage,
  SessionsChangedEvent,
} from '@sibyl/protocol';
import type { HttpClient, PageOptions, RequestOptions } from './http/http-client.js';
import { type StreamOptions, watchSessions } from './turns/run-stream.js';
import type { MessageToSend, Turns } from './turns/turns.js';

const toSessionPath = (sessionId: string) => `/sessions/${encodeURIComponent(sessionId)}`;

export interface Sessions extends ReturnType<typeof createSessions> {}

export const createSessions = (http: HttpClient) => ({
  /** With the same `idempotencyKey`, a repeated call returns the session of the first one, such as after a lost reply. */
  create({
    title,
    idempotencyKey,
    signal,
  }: RequestOptions & {
    readonly title?: string;
    readonly idempotencyKey?: string;
  } = {}): Promise<Session> {
    return http.requestJson({
      method: 'POST',
      path: '/sessions',
      body: { title },
      ...(idempotencyKey !== undefined && { headers: { 'idempotency-key': idempotencyKey } }),
      signal,
    });
  },
  /** One page, newest first; `limit` defaults to 20. */
  list(page?: PageOptions): Promise<SessionPage> {
    return http.get('/sessions', page);
  },
  rename(sessionId: string, title: string): Promise<Session> {
    return http.requestJson({ method: 'PATCH', path: toSessionPath(sessionId), body: { title } });
  },
  /** Switches to the path through a message, up to the newest message behind it. */
  activate(sessionId: string, messageId: string): Promise<Session> {
    const body = { activeMessageId: messageId };
    return http.requestJson({ method: 'PATCH', path: toSessionPath(sessionId), body });
  },
  /** Copies the messages up to one into a new session. */
  fork(
    sessionId: string,
    messageId: string,
    { title }: { readonly title?: string } = {},
  ): Promise<Session> {
    const path = `${toSessionPath(sessionId)}/fork`;
    return http.requestJson({ method: 'POST', path, body: { messageId, title } });
  },
  /** Yields changes of the user's sessions, by any client; `reload` first and whenever some may have been missed. */
  changes(options?: RequestOptions): AsyncGenerator<SessionsChangedEvent, void> {
    return watchSessions(http, options);
  },
  async delete(sessionId: string): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: toSessionPath(sessionId) });
  },
});

export interface Messages extends ReturnType<typeof createMessages> {}

export const createMessages = (http: HttpClient, turns: Turns) => ({
  /** The messages of the active path, oldest first. */
  async list(sessionId: string, options?: RequestOptions): Promise<readonly Message[]> {
    const path = `/messages/${encodeURIComponent(sessionId)}`;
    return (await http.get<MessageList>(path, options)).messages;
  },
  /** The newest turns, or the turns before or after a cursor. */
  page(sessionId: string, page?: RequestOptions & Partial<PageMessages>): Promise<MessagePage> {
    return http.get(`${toSessionPath(sessionId)}/messages`, page);
  },
  /** Sends a message and waits for the whole answer. */
  send(sessionId: string, message: MessageToSend, options: RequestOptions = {}): Promise<Reply> {
    return turns.send(sessionId, message, options);
  },
  /** Rates an answer, by its stored id; replaces earlier feedback. */
  setFeedback(sessionId: string, messageId: string, feedback: Feedback): Promise<Feedback> {
    const path = toFeedbackPath(sessionId, messageId);
    return http.requestJson({ method: 'PUT', path, body: feedback });
  },
  async withdrawFeedback(sessionId: string, messageId: string): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: toFeedbackPath(sessionId, messageId) });
  },
});

const toFeedbackPath = (sessionId: string, messageId: string) =>
  `/messages/${encodeURIComponent(sessionId)}/${encodeURIComponent(messageId)}/feedback`;

export interface Runs extends ReturnType<typeof createRuns> {}

export const createRuns = (http: HttpClient, turns: Turns) => ({
  /** The active turn of a session, or else the last one. */
  current(sessionId: string, options: RequestOptions = {}): Promise<Run | null> {
    return turns.current(sessionId, options);
  },
  /** Takes back a message that waits behind another turn. */
  async withdraw(runId: string): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: `/runs/${encodeURIComponent(runId)}` });
  },
  /** Streams a run from the frame after number `after`; defaults to its beginning. */
  join(
    runId: string,
    { after = 0, ...options }: StreamOptions & { readonly after?: number } = {},
  ): AsyncGenerator<ReplyPart, void> {
    return turns.join(runId, after, options);
  },
});
