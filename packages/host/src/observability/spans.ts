import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import {
  type Attributes,
  context,
  type Context as OtelContext,
  SpanKind as OtelKind,
  type Span as OtelSpan,
  ROOT_CONTEXT,
  type Tracer,
  trace,
} from '@opentelemetry/api';

/** A span that begins. */
export interface SpanStart {
  readonly kind: SpanKind;
  readonly name: string;
  readonly facts?: SpanFacts;
}

/** Sends spans to a collector. */
export interface SpanExporter {
  readonly tracer: Tracer;
  /** Whether texts and arguments are part of the spans. */
  readonly capturesContent: boolean;
  /** Sends what is left. */
  close(): Promise<void>;
}

/** A span of a turn as operators see it; times in milliseconds since the turn began to run. */
export interface TurnSpan {
  readonly id: number;
  /** 0 is the turn itself. */
  readonly parent: number;
  readonly kind: SpanKind;
  readonly name: string;
  readonly start: number;
  readonly ms: number;
  /** Why it failed, as a code. */
  readonly error?: string;
  /** The id of a tool call. */
  readonly callId?: string;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
}

/** Spans of one turn; the rest is counted. */
const MAX_SPANS = 200;
const MAX_NAME = 100;

/** Collects the spans of one turn, to be stored with it. */
export class TurnTrace {
  /** Milliseconds until the first text of the answer. */
  firstTextMs: number | undefined;
  /** The id of the latest span. */
  lastId = 0;
  private readonly spans: TurnSpan[] = [];
  private readonly startedAt = performance.now();
  private omitted = 0;

  /** Milliseconds since the turn began to run. */
  get now(): number {
    return performance.now() - this.startedAt;
  }

  /** The first text of the answer. */
  markFirstText(): void {
    this.firstTextMs ??= this.now;
  }

  add(span: TurnSpan): void {
    if (this.spans.length < MAX_SPANS) this.spans.push(span);
    else this.omitted += 1;
  }

  /** As it is stored. */
  toJson(): string {
    const { spans, omitted } = this;
    return JSON.stringify({ spans, ...(omitted > 0 && { omitted }) });
  }
}

interface ScopeOptions {
  readonly requestId?: string | undefined;
  readonly runId?: string | undefined;
  readonly sessionId?: string | undefined;
  /** What the caller sent, or what is known of the request that started the turn. */
  readonly traceparent?: string | undefined;
  readonly exporter?: SpanExporter | undefined;
  readonly trace?: TurnTrace | undefined;
}

/** What code that runs for a request or a turn belongs to, without being passed along. */
export class Scope {
  readonly requestId: string | undefined;
  readonly runId: string | undefined;
  readonly sessionId: string | undefined;
  readonly trace: TurnTrace | undefined;
  readonly exporter: SpanExporter | undefined;
  /** The id of the span that those below belong to. */
  readonly parentId: number;
  /** The context of the current span; undefined if nothing is exported. */
  readonly otel: OtelContext | undefined;
  /** Whether spans have begun directly in it. */
  hasSpans = false;
  private readonly given: string | undefined;
  private ownTraceId: string | undefined;

  constructor(options: ScopeOptions, below?: { readonly id: number; readonly otel?: OtelContext }) {
    this.requestId = options.requestId;
    this.runId = options.runId;
    this.sessionId = options.sessionId;
    this.trace = options.trace;
    this.exporter = options.exporter;
    this.parentId = below?.id ?? 0;
    this.otel = below ? below.otel : options.exporter && toOtelContext(options.traceparent);
    if (!this.otel) this.given = options.traceparent;
    if (options instanceof Scope) this.ownTraceId = options.ownTraceId;
  }

  get traceId(): string {
    const exported = this.otel && trace.getSpanContext(this.otel)?.traceId;
    if (exported) return exported;
    this.ownTraceId ??= this.given?.slice(3, 35) ?? createTraceId();
    return this.ownTraceId;
  }

  /** For requests to other services; undefined if this one is not traced. */
  get traceparent(): string | undefined {
    const span = this.otel && trace.getSpanContext(this.otel);
    return span ? `00-${span.traceId}-${span.spanId}-0${span.traceFlags & 1}` : this.given;
  }
}

function toOtelContext(traceparent: string | undefined): OtelContext {
  if (!traceparent) return ROOT_CONTEXT;
  const [, traceId = '', spanId = '', flags = '01'] = traceparent.split('-');
  const traceFlags = Number.parseInt(flags, 16);
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true });
}

const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** Reads the header of a caller; an invalid one is ignored, as the standard asks. */
export function readTraceparent(header: string | undefined): string | undefined {
  return header !== undefined && TRACEPARENT.test(header) ? header : undefined;
}

/** A traceparent for a turn that is not traced, so that its log lines have one id on all hosts. */
export function createTraceparent({ traceId }: Pick<Scope, 'traceId'>): string {
  return `00-${traceId}-${createTraceId().slice(16)}-00`;
}

/** Node reads the random bytes of many UUIDs at once; `randomBytes` takes ten times as long. */
const createTraceId = (): string => randomUUID().replaceAll('-', '');

const scopes = new AsyncLocalStorage<Scope>();

export const findScope = (): Scope | undefined => scopes.getStore();

export function runInScope<T>(scope: Scope, work: () => T): T {
  if (!scope.otel) return scopes.run(scope, work);
  // Also for plugins that create spans themselves.
  return context.with(scope.otel, () => scopes.run(scope, work));
}

/** How a span ended, besides its duration. */
export interface SpanEnd {
  /** Why it failed, as a code. */
  readonly error?: string | undefined;
  readonly facts?: SpanFacts | undefined;
  /** Shown to operators. */
  readonly shown?: Pick<TurnSpan, 'callId' | 'inputTokens' | 'outputTokens'> | undefined;
}

/** A span in progress, and the scope of what runs in it. */
export class ActiveSpan extends Scope {
  readonly capturesContent: boolean;
  private readonly outer: Scope;
  private readonly begun: SpanStart;
  private readonly otelSpan: OtelSpan | undefined;
  /** Milliseconds since the turn began. */
  private readonly startedAt: number;
  private readonly begunAt: number;

  constructor(outer: Scope, begun: SpanStart) {
    const { trace: turn, exporter, otel = ROOT_CONTEXT } = outer;
    outer.hasSpans = true;
    if (turn) turn.lastId += 1;
    const otelSpan = exporter && startOtelSpan(exporter.tracer, begun, otel);
    super(outer, {
      id: turn?.lastId ?? 0,
      ...(otelSpan && { otel: trace.setSpan(otel, otelSpan) }),
    });
    this.outer = outer;
    this.begun = begun;
    this.otelSpan = otelSpan;
    this.capturesContent = exporter?.capturesContent ?? false;
    this.startedAt = turn?.now ?? 0;
    this.begunAt = performance.now();
  }

  /** Spans that `work` begins are below this one. */
  run<T>(work: () => T): T {
    return runInScope(this, work);
  }

  end({ error, facts, shown }: SpanEnd = {}): void {
    const { kind, name } = this.begun;
    const ms = performance.now() - this.begunAt;
    if (kind === 'hook' && !error && !this.hasSpans && ms < IDLE_MS) return;
    if (STORED_KINDS.has(kind))
      this.trace?.add({
        id: this.parentId,
        parent: this.outer.parentId,
        kind,
        name: name.slice(0, MAX_NAME),
        start: Math.round(this.startedAt),
        ms: Math.round(ms),
        ...(error && { error }),
        ...shown,
      });
    if (this.otelSpan) endOtelSpan(this.otelSpan, name, { error, facts });
  }
}

function startOtelSpan(tracer: Tracer, { kind, name, facts }: SpanStart, otel: OtelContext) {
  const { kind: otelKind, name: toName } = SPAN_KINDS[kind];
  return tracer.startSpan(
    toName(name),
    { kind: otelKind, attributes: buildAttributes(facts) },
    otel,
  );
}

function endOtelSpan(span: OtelSpan, name: string, { error, facts }: SpanEnd): void {
  if (facts) span.setAttributes(buildAttributes(facts));
  // The route is known once the router has found it.
  if (facts?.route) span.updateName(`${name} ${facts.route}`);
  if (error) span.setStatus({ code: 2, message: error }).setAttribute('error.type', error);
  span.end();
}

/** Most hooks of a turn return at once; a span that does not end is not exported. */
const IDLE_MS = 20;

/** Store and bus would be most of a turn's spans; they are only exported. */
const STORED_KINDS: ReadonlySet<SpanKind> = new Set(['model', 'tool', 'hook']);

/** Begins a span below the current one; undefined if it would not be recorded. */
export function startSpan(begun: SpanStart): ActiveSpan | undefined {
  const scope = scopes.getStore();
  if (!scope || (!scope.exporter && !scope.trace)) return undefined;
  return new ActiveSpan(scope, begun);
}

/** What is known of the turn that a span belongs to. */
interface TracedTurn {
  readonly runId: string;
  readonly traceparent?: string | undefined;
  readonly sessionId: string;
  readonly owner: string;
}

/** Begins a span in the trace of a turn, perhaps after it has ended; undefined if it would not be exported. */
export function startTurnSpan(
  { runId, traceparent, sessionId, owner: userId }: TracedTurn,
  { kind, name, facts }: SpanStart,
): ActiveSpan | undefined {
  const scope = findScope();
  if (!scope?.exporter || !traceparent) return undefined;
  const { exporter, requestId } = scope;
  return new ActiveSpan(new Scope({ requestId, runId, sessionId, traceparent, exporter }), {
    kind,
    name,
    facts: { runId, sessionId, userId, ...facts },
  });
}

/** Runs work as a span. */
export async function withSpan<T>(begun: SpanStart, work: () => T | Promise<T>): Promise<T> {
  const span = startSpan(begun);
  if (!span) return work();
  try {
    const result = await span.run(work);
    span.end();
    return result;
  } catch (error) {
    span.end({ error: toErrorCode(error) });
    throw error;
  }
}

/** A short name of an error, without its text. */
export function toErrorCode(error: unknown): string {
  const { code, name } = (typeof error === 'object' && error ? error : {}) as {
    readonly code?: unknown;
    readonly name?: unknown;
  };
  if (typeof code === 'string') return code;
  return typeof name === 'string' ? name : 'error';
}

type SpanKind =
  | 'request'
  | 'turn'
  | 'read'
  | 'feedback'
  | 'model'
  | 'tool'
  | 'hook'
  | 'store'
  | 'bus';

/** What is known about a span, under our own names. */
interface SpanFacts {
  readonly sessionId?: string | undefined;
  readonly conversationId?: string | undefined;
  readonly userId?: string | undefined;
  readonly runId?: string | undefined;
  readonly hostId?: string | undefined;
  readonly agent?: string | undefined;
  /** As the host names it: with its provider, which is a separate attribute. */
  readonly model?: string | undefined;
  /** The model that answered, if another one was asked. */
  readonly answeredBy?: string | undefined;
  readonly inputTokens?: number | undefined;
  readonly outputTokens?: number | undefined;
  readonly finishReason?: string | undefined;
  readonly tool?: string | undefined;
  readonly toolCallId?: string | undefined;
  readonly plugin?: string | undefined;
  readonly hook?: string | undefined;
  readonly method?: string | undefined;
  readonly route?: string | undefined;
  readonly status?: number | undefined;
  readonly operation?: string | undefined;
  readonly statement?: string | undefined;
  readonly engine?: string | undefined;
  readonly messageId?: string | undefined;
  readonly evaluation?: string | undefined;
  readonly rating?: string | undefined;
  /** Only with OTEL_CAPTURE_CONTENT. */
  readonly comment?: string | undefined;
  readonly input?: string | undefined;
  readonly output?: string | undefined;
  readonly toolArguments?: string | undefined;
  readonly toolResult?: string | undefined;
}

/**
 * The attribute of each fact. The names of generative AI are not stable in OpenTelemetry yet, so they are only here.
 */
const NAMES: Readonly<Record<Exclude<keyof SpanFacts, 'model'>, string>> = {
  sessionId: 'session.id',
  conversationId: 'gen_ai.conversation.id',
  userId: 'user.id',
  runId: 'sibyl.run.id',
  hostId: 'service.instance.id',
  agent: 'gen_ai.agent.name',
  answeredBy: 'gen_ai.response.model',
  inputTokens: 'gen_ai.usage.input_tokens',
  outputTokens: 'gen_ai.usage.output_tokens',
  finishReason: 'gen_ai.response.finish_reasons',
  tool: 'gen_ai.tool.name',
  toolCallId: 'gen_ai.tool.call.id',
  plugin: 'sibyl.plugin',
  hook: 'sibyl.hook',
  method: 'http.request.method',
  route: 'http.route',
  status: 'http.response.status_code',
  operation: 'gen_ai.operation.name',
  statement: 'db.operation.name',
  engine: 'db.system.name',
  messageId: 'sibyl.message.id',
  evaluation: 'gen_ai.evaluation.name',
  rating: 'gen_ai.evaluation.score.label',
  comment: 'gen_ai.evaluation.explanation',
  input: 'gen_ai.input.messages',
  output: 'gen_ai.output.messages',
  toolArguments: 'gen_ai.tool.call.arguments',
  toolResult: 'gen_ai.tool.call.result',
};

/** How each kind of span is named and classified. */
const SPAN_KINDS: Readonly<
  Record<SpanKind, { readonly kind: OtelKind; readonly name: (name: string) => string }>
> = {
  request: { kind: OtelKind.SERVER, name: (name) => name },
  turn: { kind: OtelKind.INTERNAL, name: (name) => `invoke_agent ${name}` },
  read: { kind: OtelKind.INTERNAL, name: (name) => `read_run ${name}` },
  feedback: { kind: OtelKind.INTERNAL, name: (name) => `feedback ${name}` },
  model: { kind: OtelKind.CLIENT, name: (name) => `chat ${splitModel(name).model}` },
  tool: { kind: OtelKind.INTERNAL, name: (name) => `execute_tool ${name}` },
  hook: { kind: OtelKind.INTERNAL, name: (name) => `hook ${name}` },
  store: { kind: OtelKind.CLIENT, name: (name) => `store ${name}` },
  bus: { kind: OtelKind.PRODUCER, name: (name) => `bus ${name}` },
};

function buildAttributes({ model, ...facts }: SpanFacts = {}): Attributes {
  const attributes: Attributes = model === undefined ? {} : describeModel(model);
  for (const [fact, value] of Object.entries(facts))
    if (value !== undefined)
      attributes[NAMES[fact as keyof typeof NAMES]] = toAttribute(fact, value);
  return attributes;
}

function describeModel(id: string): Attributes {
  const { provider, model } = splitModel(id);
  return { 'gen_ai.request.model': model, ...(provider && { 'gen_ai.provider.name': provider }) };
}

/** Names of models may contain slashes too. */
function splitModel(id: string): { readonly provider: string; readonly model: string } {
  const end = id.indexOf('/');
  return { provider: id.slice(0, Math.max(0, end)), model: id.slice(end + 1) };
}

/** A response may have several choices, each with its reason. */
function toAttribute(fact: string, value: string | number) {
  if (fact === 'answeredBy') return splitModel(String(value)).model;
  return fact === 'finishReason' ? [String(value)] : value;
}
