import type { ModelMessage, UserPart } from '@sibyl/plugin-kit';
import type { ModelTool, ModelToolCall, ModelUsage } from '@sibyl/plugin-kit/host';
import type { ErrorKind, JsonObject, ReasoningEffort } from '@sibyl/protocol';
import type { ModelFacts } from './model-facts.js';
import { findRejection, type Rejection } from './rejections.js';

export type { ModelMessage, ModelUse, UserPart } from '@sibyl/plugin-kit';
export type {
  MediaPart,
  ModelRole,
  ModelTool,
  ModelToolCall,
  ModelToolResult,
  ModelUsage,
} from '@sibyl/plugin-kit/host';

/** One call to a model, with everything it sees. */
export interface ModelCall {
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly ModelTool[];
  /** Whether the model has to call some tool, or this one. Whether it does is not certain. */
  readonly toolChoice?: 'required' | { readonly tool: string } | undefined;
  /** How much to reason; `omit` asks for nothing, by default the model's settings decide. */
  readonly reasoning?: ReasoningEffort | 'omit' | undefined;
  /** JSON Schema of the answer. Whether the model follows it is not certain. */
  readonly responseSchema?: JsonObject | undefined;
  readonly signal: AbortSignal;
  /** Called on activity without a part, such as hidden reasoning, so that the call does not time out. */
  readonly onActivity?: (() => void) | undefined;
  /** Further headers of the request, such as those of a trace. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** What a model streams. `finish` is always last, and only if the stream is complete. */
export type ModelPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'tool-call'; readonly call: ModelToolCall }
  | {
      readonly type: 'warning';
      readonly code: string;
      readonly message: string;
      /** The model that answers, if another one was asked. */
      readonly answeredBy?: Pick<Model, 'id' | 'facts'> | undefined;
    }
  | {
      readonly type: 'finish';
      readonly reason: 'stop' | 'tool-calls' | 'length' | 'content-filter' | 'other';
      readonly usage: ModelUsage;
      /** The model that answered, if another one did. */
      readonly model?: string | undefined;
      /** JSON that the provider needs back with this step in the next call; only its adapter reads it. */
      readonly providerData?: JsonObject | undefined;
    };

export type ModelFinish = Extract<ModelPart, { type: 'finish' }>;

/** A language model. */
export interface Model {
  /** The id in `/models` and in messages, such as `openai/gpt-…`. */
  readonly id: string;
  readonly label: string;
  readonly provider: string;
  /** What it supports, as far as is known now. */
  readonly facts: ModelFacts;
  /** Throws a ModelError, possibly after some parts; throws the signal's reason when aborted. */
  stream(call: ModelCall): AsyncIterable<ModelPart>;
}

export interface ModelErrorOptions extends ErrorOptions {
  readonly kind: ErrorKind;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  readonly retryAfterSeconds?: number | undefined;
  readonly rejection?: Rejection | undefined;
  readonly failure?: ModelFailure | undefined;
}

/** What happened to a call, for the log and for operators; without keys and addresses. */
export interface ModelFailure {
  /** Of the system or the provider, such as ENOTFOUND or insufficient_quota. */
  readonly code?: string | undefined;
  /** Of the reply. */
  readonly status?: number | undefined;
  /** What the provider or the system said. */
  readonly text?: string | undefined;
  /** The name of the provider's host. */
  readonly host?: string | undefined;
}

/** Why the answer of a model is missing or incomplete; the message is safe to show to the user. */
export class ModelError extends Error {
  override readonly name = 'ModelError';
  readonly kind: ErrorKind;
  readonly retryable: boolean;
  readonly retryAfterSeconds: number | undefined;
  /** Set if the model may accept the call in another form. */
  readonly rejection: Rejection | undefined;
  readonly failure: ModelFailure;

  constructor(message: string, options: ModelErrorOptions) {
    super(message, options);
    this.kind = options.kind;
    this.retryable = options.retryable;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.rejection = options.rejection;
    this.failure = options.failure ?? {};
  }
}

/** The error reply of a provider; `text` may contain anything and is never shown completely. */
export interface ProviderError {
  readonly status: number;
  readonly text: string;
  /** Machine-readable codes, such as `insufficient_quota`. */
  readonly code?: string;
  /** The whole reply, which may name limits; never shown. */
  readonly body?: string | undefined;
  readonly retryAfterSeconds?: number | undefined;
  readonly host?: string | undefined;
}

const messages: Readonly<Record<Exclude<ErrorKind, 'unknown'>, string>> = {
  auth: "The model's provider does not accept this oracle's key.",
  billing: 'The account that pays for the model is out of credit.',
  rate_limit: 'The model receives too many requests at the moment. Please try again shortly.',
  timeout: 'The model took too long to answer.',
  server: "The model's provider has an error at the moment.",
  network: 'The connection to the model failed.',
};
const retryableKinds: ReadonlySet<ErrorKind> = new Set([
  'rate_limit',
  'timeout',
  'server',
  'network',
]);

/** Creates an error with a message for the user; `detail` is for the log. */
export function createModelError(
  kind: Exclude<ErrorKind, 'unknown'>,
  detail: string,
  {
    retryAfterSeconds,
    ...failure
  }: ModelFailure & { readonly retryAfterSeconds?: number | undefined } = {},
): ModelError {
  return new ModelError(messages[kind], {
    kind,
    retryable: retryableKinds.has(kind),
    retryAfterSeconds,
    failure: describeFailure({ text: detail, ...failure }),
    cause: new Error(redact(detail)),
  });
}

/** The error of a connection that failed; `host` is that of the provider. */
export function toNetworkError(error: unknown, host: string | undefined): ModelError {
  const { code, message } = findSystemError(error);
  const failure = { host, ...(typeof code === 'string' && { code }) };
  return createModelError('network', message || String(error), failure);
}

/** The innermost error that has a code: fetch wraps those of the system, and a name may have several addresses. */
function findSystemError(error: unknown): NodeJS.ErrnoException {
  const inner = error instanceof AggregateError ? error.errors[0] : (error as Error)?.cause;
  const { code, message } = (error ?? {}) as NodeJS.ErrnoException;
  if (inner instanceof Error && (typeof code !== 'string' || !message))
    return findSystemError(inner);
  return error instanceof Error ? error : new Error(String(error));
}

function describeFailure({ code, status, text, host }: ModelFailure): ModelFailure {
  return {
    ...(code && { code: redact(code) }),
    ...(status && { status }),
    ...(text && { text: redact(text) }),
    ...(host && { host }),
  };
}

/** Converts a provider's error reply. */
export function toModelError(error: ProviderError): ModelError {
  const { status, text, code = '', body = '', retryAfterSeconds, host } = error;
  const failure = { status, code, text, host };
  const rejection = findRejection(status, `${code} ${text} ${body}`);
  if (rejection) return createRejectionError(rejection, error);
  const kind = classifyError(status, `${code} ${text}`);
  if (kind !== 'unknown')
    return createModelError(kind, `${status} ${code}: ${text}`, { ...failure, retryAfterSeconds });
  return new ModelError(
    `The model's provider refused the request: ${redact(text) || code || status}`,
    {
      kind,
      retryable: false,
      failure: describeFailure(failure),
      cause: new Error(redact(`${status} ${code}`)),
    },
  );
}

function createRejectionError(rejection: Rejection, error: ProviderError): ModelError {
  const { status, text, code, host } = error;
  const cause = new Error(redact(`${status} ${code}: ${text}`));
  return new ModelError(describeRejection(rejection), {
    kind: 'unknown',
    retryable: false,
    rejection,
    failure: describeFailure({ status, text, code, host }),
    cause,
  });
}

function describeRejection(rejection: Rejection): string {
  switch (rejection.of) {
    case 'context': {
      const window = rejection.limit ? ` of ${rejection.limit} tokens` : '';
      return `The message does not fit into the model's context window${window}, even without the earlier conversation. Shorten it, or choose another model.`;
    }
    case 'images':
      return 'The model does not accept the images of this conversation.';
    case 'tools':
      return 'The model does not support tools.';
    case 'tool-choice':
      return 'The model cannot be forced to call a tool.';
    case 'reasoning':
      return 'The model does not accept the settings for its reasoning.';
    case 'schema':
      return 'The model does not accept a schema for its answer.';
    default:
      return rejection satisfies never;
  }
}

const OUT_OF_CREDIT =
  /insufficient_quota|billing_(hard_limit|error|not_active)|credit balance|insufficient (credits?|funds|balance)|payment required/i;
const BAD_KEY = /api[ _]key[ _](not valid|invalid|expired)|invalid[ _]api[ _]key/i;
const OVERLOADED = /overloaded/i;

function classifyError(status: number, text: string): ErrorKind {
  if (status === 402 || (status < 500 && OUT_OF_CREDIT.test(text))) return 'billing';
  if (status === 401 || status === 403 || (status === 400 && BAD_KEY.test(text))) return 'auth';
  if (status === 429) return 'rate_limit';
  if (status === 408 || status === 504) return 'timeout';
  if (status >= 500 || OVERLOADED.test(text)) return 'server';
  return 'unknown';
}

const TEXT_LENGTH = 200;

/** Shortens a provider's text to one line without addresses and possible keys. */
function redact(text: string): string {
  const line = text
    .slice(0, 2000)
    .replace(/[a-z][a-z0-9+.-]*:\/\/\S+/gi, '…')
    .replace(/[\w*-]*(?:[\w-]{30,}|\*{3,}|sk-[\w-]+)[\w*-]*/g, '…')
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim();
  return line.length > TEXT_LENGTH ? `${line.slice(0, TEXT_LENGTH)}…` : line;
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** Reads how long a provider asks to wait: from its headers, otherwise from a `retryDelay` in the body. */
export function readRetryAfter(
  headers: Headers,
  body: string,
  now = Date.now(),
): number | undefined {
  const ms = Number(headers['retry-after-ms']);
  if (ms > 0) return ms / 1000;
  const given = String(headers['retry-after'] ?? '').trim();
  if (/^\d+(\.\d+)?$/.test(given)) return Number(given);
  const date = given ? Date.parse(given) : Number.NaN;
  if (!Number.isNaN(date)) return Math.max(0, (date - now) / 1000);
  const delay = /"retryDelay":\s*"(\d+(?:\.\d+)?)s"/.exec(body)?.[1];
  return delay ? Number(delay) : undefined;
}

/** What a model receives of a message of the user: its content, then the note of the host. */
export function listUserParts({
  content,
  note,
}: Extract<ModelMessage, { role: 'user' }>): readonly UserPart[] {
  const parts = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content;
  return note ? [...parts, { type: 'text', text: note }] : parts;
}

/** Makes a tool's schema valid for every provider: an object with properties. */
export function toObjectSchema({ $schema, ...schema }: JsonObject): JsonObject {
  return { properties: {}, ...schema, type: 'object' };
}
