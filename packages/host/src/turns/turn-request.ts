import type { GateRequest, RunPermission } from '@sibyl/plugin-kit';
import type { SurfaceTurn, ToolChoice } from '@sibyl/plugin-kit/surface';
import {
  type Attachment,
  OracleError,
  type ReplyWarning,
  type SendMessage,
  TimeZone,
} from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';
import type { AttachedMessage } from '../files/sent-files.js';
import type { Models } from '../models/models.js';
import type { TurnOrigin } from '../store/branches.js';
import { listAttachments, type MessageStore } from '../store/message-store.js';

/** A message to answer, from any transport. */
export interface TurnRequest {
  readonly caller: Caller;
  readonly sessionId: string;
  readonly requestId: string;
  readonly message: Omit<
    SendMessage,
    | 'message'
    | 'parentId'
    | 'regenerate'
    | 'stream'
    | 'returnAllMessages'
    | 'requestId'
    | 'attachments'
  > & { readonly message: string; readonly attachments?: readonly Attachment[] | undefined };
  /** Where the turn begins; default: the end of the active branch. */
  readonly origin?: TurnOrigin | undefined;
  /** What the transport knows about the user; fields of the message override it. */
  readonly user: {
    readonly timezone?: string | undefined;
    readonly matrixHomeServer?: string | undefined;
    readonly matrixAccessToken?: string | undefined;
  };
  /** Parts of the request that were ignored before the turn started. */
  readonly warnings?: readonly ReplyWarning[] | undefined;
  /** The transport, such as `api`. */
  readonly client: string;
  /** The delegation that the turn runs under, if its user is not there; the turn ends with it. */
  readonly permission?: RunPermission | undefined;
  /** What a client of another protocol sent, and the plugin that serves it. */
  readonly surface?: SurfaceExtras | undefined;
  /** Whether a paused turn of the session makes this one wait instead of being canceled by it. */
  readonly waitsForPaused?: boolean | undefined;
  /** A repeated request with this key joins the run of the first one. */
  readonly idempotencyKey?: string | undefined;
}

/** Takes the question from the store if it is to be answered again. */
export async function readQuestion(
  request: TurnRequest,
  messages: Pick<MessageStore, 'findQuestion'>,
): Promise<TurnRequest> {
  const { origin, caller, sessionId, message } = request;
  if (!origin || !('questionId' in origin)) return request;
  const key = { owner: caller.did, sessionId, messageId: origin.questionId };
  const question = await messages.findQuestion(key);
  if (!question) throw new OracleError('message_not_found');
  const { id: questionId, content, metadata } = question;
  const attachments = listAttachments(question);
  const asked = { metadata, ...message, message: content, attachments };
  return { ...request, origin: { questionId }, message: asked };
}

export interface SurfaceExtras {
  readonly plugin: string;
  readonly instructions?: SurfaceTurn['instructions'] | undefined;
  readonly history?: readonly AttachedMessage[] | undefined;
  readonly clientTools?: SurfaceTurn['clientTools'] | undefined;
  readonly toolChoice?: SurfaceTurn['toolChoice'] | undefined;
  /** The ids that the client gave the message. */
  readonly clientIds?: readonly string[] | undefined;
}

/** Converts a request to JSON that another host can execute. */
export function toStoredRequest({ caller, ...request }: TurnRequest): unknown {
  const { did, expiration, loginCids, accessKey, presentedDelegation, presentedAt } = caller;
  // JSON has no infinity.
  const expires = Number.isFinite(expiration) ? { expiration } : {};
  const presented = { presentedDelegation, presentedAt };
  return { ...request, caller: { did, loginCids, accessKey, ...presented, ...expires } };
}

/** Reads a stored request; undefined if it is missing or cannot be decrypted. */
export function fromStoredRequest(stored: unknown): TurnRequest | undefined {
  if (typeof stored !== 'object' || stored === null) return undefined;
  const request = stored as TurnRequest;
  const { expiration = Number.POSITIVE_INFINITY } = request.caller as Partial<Caller>;
  return { ...request, caller: { ...request.caller, expiration } };
}

/** Characters of an unknown name that a warning quotes. */
const SHOWN_LENGTH = 64;

interface UserTimezone {
  readonly timezone?: string;
  readonly warnings: readonly ReplyWarning[];
}

/** Returns the first valid time zone; an unknown name becomes a warning, not an error. */
export function readTimezone(...names: readonly (string | undefined)[]): UserTimezone {
  const warnings: ReplyWarning[] = [];
  for (const name of names) {
    if (!name) continue;
    if (TimeZone.safeParse(name).success) return { timezone: name, warnings };
    warnings.push(unknownTimezone(name));
  }
  return { warnings };
}

function unknownTimezone(name: string): ReplyWarning {
  const shown = JSON.stringify(name.slice(0, SHOWN_LENGTH).toWellFormed());
  return {
    code: 'unknown_timezone',
    message: `The time zone ${shown} is unknown and was ignored. Use an IANA name, such as Africa/Nairobi.`,
  };
}

/** The request with what a client chooses about its tools for the rest of the turn. */
export function withToolChoice(request: TurnRequest, toolChoice?: ToolChoice): TurnRequest {
  const { surface } = request;
  return surface ? { ...request, surface: { ...surface, toolChoice } } : request;
}

const CREDENTIALS_WARNING = {
  code: 'credentials_expired',
  message:
    'The turn continues after a pause. Credentials that were sent with the message may have expired; tools that need them fail then.',
};

/** Credentials in a message are short-lived; a turn may be paused for days. */
export function withExpiryWarning(request: TurnRequest): TurnRequest {
  const { message, user, warnings = [] } = request;
  if (!message.mcpInvocations && !user.matrixAccessToken) return request;
  return { ...request, warnings: [...warnings, CREDENTIALS_WARNING] };
}

export function assertModelExists(models: Models, id: string | undefined): void {
  if (id === undefined || models.find(id)) return;
  throw new OracleError('validation_failed', { message: ['model: unknown; see /models'] });
}

/** What gates learn about a message. */
export function toGateRequest(
  { caller, sessionId, requestId, message }: TurnRequest,
  models: Models,
): GateRequest {
  const model = message.model ?? models.get('main').id;
  return { owner: caller.did, sessionId, requestId, model, length: message.message.length };
}
