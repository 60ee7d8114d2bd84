import { describeIssues, type JsonObject } from '@sibyl/protocol';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import type { JsonValue, Reach, TurnContext } from './context.js';
import type { Visibility } from './manifest.js';
import type { ModelRole } from './model.js';
import type { ToolInput, ToolSchema } from './schema.js';
import type { RunDelegation } from './turns.js';

/** A short text for the user about what a running tool does. */
export type ToolProgress = string;

/**
 * What `run` returns: a value that JSON can represent, a promise of one, or an async generator that
 * yields progress and returns the value.
 */
export type ToolResult<Output> =
  | Output
  | Promise<Output>
  | AsyncGenerator<ToolProgress, Output, undefined>;

/** A question that a tool asks. */
export interface InterruptRequest<Schema = ToolSchema> {
  /**
   * What is asked: whether the tool may act (`confirmation`), for data (`input_required`), or for the result of
   * something that the user's client does (`tool_call`).
   */
  readonly kind: 'tool_call' | 'confirmation' | 'input_required';
  /** The answer must match it. */
  readonly schema: Schema;
  /** What the client shows or needs to answer. */
  readonly data?: JsonValue | undefined;
  /** After this time the question counts as not answered. */
  readonly expiresInSeconds?: number | undefined;
}

/** The answer to a question, validated by its schema. */
export type ToolAnswer<Schema> = Schema extends StandardSchemaV1
  ? StandardSchemaV1.InferOutput<Schema>
  : unknown;

/** A stored delegation that the user signed with the approval of a call. */
export interface ApprovedDelegation extends RunDelegation {
  readonly resource: string;
}

/** What a tool can read and do during one call. */
export interface ToolContext<Config = Readonly<Record<string, unknown>>, Services = unknown>
  extends TurnContext<Config, Services> {
  /**
   * Asks the user. If there is no answer yet, it throws and the turn pauses, across restarts of the host. Once there is an
   * answer, the tool runs again from its start, and this returns it: side effects belong after the question. Throws
   * an error for the model if the question expired or the user sent another message.
   */
  interrupt<Schema extends ToolSchema>(
    request: InterruptRequest<Schema>,
  ): Promise<ToolAnswer<Schema>>;
  /** What the user delegated with the approval of this call, as `delegates` of the tool asked for; it is stored. */
  readonly delegation?: ApprovedDelegation | undefined;
}

/** What the approval of a call delegates: turns of the user, with the plugin's `delegatedTurns`. */
export interface ToolDelegation {
  /** The only resource of the delegation, such as `ixo:oracle:did:key:z6Mk…:schedule/7`. */
  readonly resource: string;
  /** What the turns do, as the user sees it: a term `message` becomes the caveat `messageHash`. At least one. */
  readonly terms: JsonObject;
  /** How long the delegation is valid. */
  readonly days: number;
}

/** An action the agent can take. */
// biome-ignore-start lint/suspicious/noExplicitAny: without arguments it is any tool.
export interface Tool<Schema extends ToolSchema = any, Output = any, Services = any, Config = any> {
  // biome-ignore-end lint/suspicious/noExplicitAny: see above.
  /** Letters, digits, `_` and `-`, at most 64 characters: names that every provider accepts. */
  readonly name: string;
  /** For the model: what the tool does and when to use it. */
  readonly description: string;
  /** Input that does not match never reaches the tool; the model gets the validation errors. */
  readonly inputSchema: Schema;
  /** Checks the result: one that does not match fails the call. */
  readonly outputSchema?: StandardSchemaV1<unknown, Output>;
  /** Time limit of one call; 60,000 by default. */
  readonly timeoutMs?: number;
  /** By default that of the plugin. */
  readonly visibility?: Visibility;
  /** Set this for a tool that calls an action of the user's page: clients receive `action_call` instead of `tool_call`. */
  readonly event?: 'action_call';
  /**
   * Whether a call runs only after the user has approved it with a signature; the turn pauses until then. A function
   * decides by input and turn; if it throws or takes too long, approval is needed.
   */
  readonly needsApproval?:
    | boolean
    | ((
        input: ToolInput<Schema>,
        turn: TurnContext<Config, Services>,
      ) => boolean | Promise<boolean>);
  /**
   * What the user also delegates by approving a call as it is. The tool receives it as `turn.delegation`, unless the user
   * edited the input or the client did not sign it. Called when the approval is requested; if it throws, the call is approved without.
   */
  readonly delegates?: (
    input: ToolInput<Schema>,
    turn: TurnContext<Config, Services>,
  ) => ToolDelegation | Promise<ToolDelegation>;
  /**
   * What the tool uses of what is stored for the user: nothing beyond the session, or only what belongs to `turn.user.subUser`, if
   * there is one. By default it may use anything, and is left out of turns whose access key permits less.
   */
  readonly reach?: Reach;
  /** An error that it throws is reported to the model. */
  readonly run: (
    input: ToolInput<Schema>,
    turn: ToolContext<Config, Services>,
  ) => ToolResult<Output>;
}

/** Types a tool by its schemas. In a plugin, `tool` of the context also types `turn.services` and `turn.config`. */
export const defineTool = <
  Schema extends ToolSchema,
  Output,
  Services = unknown,
  Config = Readonly<Record<string, unknown>>,
>(
  tool: Tool<Schema, Output, Services, Config>,
): Tool<Schema, Output, Services, Config> => tool;

const MAX_PROGRESS_LENGTH = 500;

/** Runs a tool to its end: reports its progress and checks its result. */
export async function runTool(
  { name, run, outputSchema }: Tool,
  input: unknown,
  turn: ToolContext,
  onProgress: (progress: ToolProgress) => void,
): Promise<unknown> {
  const started = run(input, turn);
  const result = isGenerator(started)
    ? await finishGenerator(started, turn.signal, onProgress)
    : await started;
  if (!outputSchema) return result;
  const checked = await outputSchema['~standard'].validate(result);
  if (!checked.issues) return checked.value;
  const issues = describeIssues(checked.issues, 'result').join('; ');
  throw new Error(`The result of ${name} does not match its output schema: ${issues}`);
}

type ProgressGenerator = AsyncGenerator<ToolProgress, unknown, undefined>;

function isGenerator(value: unknown): value is ProgressGenerator {
  return (
    typeof value === 'object' && value !== null && Symbol.asyncIterator in value && 'next' in value
  );
}

async function finishGenerator(
  generator: ProgressGenerator,
  signal: AbortSignal,
  onProgress: (progress: ToolProgress) => void,
): Promise<unknown> {
  try {
    for (;;) {
      signal.throwIfAborted();
      const { done, value } = await generator.next();
      if (done) return value;
      onProgress(String(value).slice(0, MAX_PROGRESS_LENGTH));
    }
  } finally {
    // Runs the tool's own `finally` if the turn was canceled.
    await generator.return(undefined);
  }
}

/** An agent that the main agent can delegate a task to, with the tool `call_<name>_agent`. */
// biome-ignore lint/suspicious/noExplicitAny: without arguments it is any sub-agent.
export interface SubAgent<Services = any, Config = any> {
  /** Lower case, digits and `_`, at most 40 characters. */
  readonly name: string;
  /** For the main agent: what the sub-agent does and when to call it. */
  readonly description: string;
  /** The system prompt. */
  readonly prompt: string | ((turn: TurnContext<Config, Services>) => string | Promise<string>);
  // biome-ignore lint/suspicious/noExplicitAny: tools of any schema.
  readonly tools?: readonly Tool<any, any, Services, Config>[];
  /** As for a tool; its tools have their own. */
  readonly reach?: Reach;
  /** `subagent` by default. */
  readonly model?: ModelRole;
  /** By default that of the plugin. */
  readonly visibility?: Visibility;
}

/** Types a sub-agent. */
export const defineSubAgent = <Services = unknown, Config = Readonly<Record<string, unknown>>>(
  agent: SubAgent<Services, Config>,
): SubAgent<Services, Config> => agent;

/** Types what a plugin contributes: its functions know the configuration and the services of the plugin. */
export interface Definitions<Config, Services> {
  readonly tool: <Schema extends ToolSchema, Output>(
    tool: Tool<Schema, Output, Services, Config>,
  ) => Tool<Schema, Output>;
  readonly subAgent: (agent: SubAgent<Services, Config>) => SubAgent;
}

// biome-ignore lint/suspicious/noExplicitAny: they are the same functions for every plugin.
export const definitions: Definitions<any, any> = { tool: defineTool, subAgent: defineSubAgent };

/**
 * A file that a tool returns, alone or inside of its result. A model that sees receives images as images; others receive
 * the description, type and size.
 */
export interface MediaResult {
  readonly mediaType: string;
  readonly data: Uint8Array;
  /** What a model that cannot see the file should know about it. */
  readonly description: string;
}

/** Marks a file as the result of a tool. Store it with `turn.blobs` if it must outlive the call. */
export const mediaResult = (media: MediaResult): MediaResult & { toJSON(): string } => ({
  ...media,
  // Results are JSON: models receive this text.
  toJSON: () => `[${media.mediaType}, ${media.data.byteLength} bytes] ${media.description}`,
});
