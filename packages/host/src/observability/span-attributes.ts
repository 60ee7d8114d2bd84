import { type Attributes, SpanKind as OtelKind } from '@opentelemetry/api';

export type SpanKind =
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
export interface SpanFacts {
  readonly sessionId?: string | undefined;
  readonly userId?: string | undefined;
  readonly runId?: string | undefined;
  readonly hostId?: string | undefined;
  readonly agent?: string | undefined;
  readonly model?: string | undefined;
  readonly provider?: string | undefined;
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
const NAMES: Readonly<Record<keyof SpanFacts, string>> = {
  sessionId: 'session.id',
  userId: 'user.id',
  runId: 'sibyl.run.id',
  hostId: 'service.instance.id',
  agent: 'gen_ai.agent.name',
  model: 'gen_ai.request.model',
  provider: 'gen_ai.provider.name',
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
export const SPAN_KINDS: Readonly<
  Record<SpanKind, { readonly kind: OtelKind; readonly name: (name: string) => string }>
> = {
  request: { kind: OtelKind.SERVER, name: (name) => name },
  turn: { kind: OtelKind.INTERNAL, name: (name) => `invoke_agent ${name}` },
  read: { kind: OtelKind.INTERNAL, name: (name) => `read_run ${name}` },
  feedback: { kind: OtelKind.INTERNAL, name: (name) => `feedback ${name}` },
  model: { kind: OtelKind.CLIENT, name: (name) => `chat ${name}` },
  tool: { kind: OtelKind.INTERNAL, name: (name) => `execute_tool ${name}` },
  hook: { kind: OtelKind.INTERNAL, name: (name) => `hook ${name}` },
  store: { kind: OtelKind.CLIENT, name: (name) => `store ${name}` },
  bus: { kind: OtelKind.PRODUCER, name: (name) => `bus ${name}` },
};

export function buildAttributes(facts: SpanFacts = {}): Attributes {
  const attributes: Attributes = {};
  for (const [fact, value] of Object.entries(facts))
    if (value !== undefined) attributes[NAMES[fact as keyof SpanFacts]] = toAttribute(fact, value);
  return attributes;
}

/** A response may have several choices, each with its reason. */
const toAttribute = (fact: string, value: string | number) =>
  fact === 'finishReason' ? [String(value)] : value;
