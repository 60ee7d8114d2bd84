import {
  type AgAction,
  type BrowserTool as BrowserToolDeclaration,
  describeIssues,
  type JsonObject,
} from '@sibyl/protocol';

/** A schema of zod 4 or any library with Standard Schema and JSON Schema support (standardschema.dev). */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly jsonSchema: {
      readonly input: (options: { readonly target: string }) => Record<string, unknown>;
    };
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | {
      readonly issues: readonly {
        readonly message: string;
        readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
      }[];
    };

/** A JSON Schema, draft-07 or 2020-12. It does not validate the arguments of a call. */
export type JsonSchema = JsonObject & { readonly '~standard'?: never };

export type ArgumentSchema = StandardSchema | JsonSchema;

/** The arguments of `run`: the output of the schema, or any object for a JSON Schema. */
export type InferArguments<Schema> =
  Schema extends StandardSchema<infer Output> ? Output : JsonObject;

/** Identifies the call that a tool runs for. */
export interface CallContext {
  readonly sessionId: string;
  readonly requestId: string;
  readonly toolCallId: string;
}

interface ToolDefinition<Schema extends ArgumentSchema> {
  readonly name: string;
  /** Explains to the model what the tool does and when to use it. */
  readonly description: string;
  readonly schema: Schema;
}

/** A tool that runs in the page; the model receives what `run` returns. */
export interface BrowserTool<Schema extends ArgumentSchema = ArgumentSchema>
  extends ToolDefinition<Schema> {
  run(args: InferArguments<Schema>, call: CallContext): unknown;
}

/** The argument of an action's `render`. */
export interface ActionView<Args = JsonObject> {
  readonly toolCallId: string;
  readonly status: 'running' | 'done' | 'error';
  readonly args: Args;
  /** The return value of `run`, once it has returned. */
  readonly result?: unknown;
  readonly error?: string;
}

/** An AG-UI action: a tool that can also render something in the page. */
export interface Action<Schema extends ArgumentSchema = ArgumentSchema, Rendered = unknown>
  extends ToolDefinition<Schema> {
  /** Optional: an action without it only renders, and the model receives `{ shown: true }`. */
  run?(args: InferArguments<Schema>, call: CallContext): unknown;
  /** Renders the call with the page's UI framework. */
  render?(view: ActionView<InferArguments<Schema>>): Rendered;
}

/** The tools and actions that a message declares. */
interface ToolDeclarations {
  readonly tools?: BrowserToolDeclaration[];
  readonly agActions?: AgAction[];
}

/** The tools and actions of a page. */
export class ToolRegistry {
  private readonly tools = new Map<string, BrowserTool>();
  private readonly actions = new Map<string, Action>();
  private hasTools = false;
  private hasActions = false;

  /** Whether a tool or action was ever added. */
  get isInUse(): boolean {
    return this.hasTools || this.hasActions;
  }

  addTool(tool: BrowserTool): () => void {
    this.hasTools = true;
    return add(this.tools, tool);
  }

  addAction(action: Action): () => void {
    this.hasActions = true;
    return add(this.actions, action);
  }

  getTool(name: string): BrowserTool | undefined {
    return this.tools.get(name);
  }

  getAction(name: string): Action | undefined {
    return this.actions.get(name);
  }

  /** The server remembers declarations, so an empty list is sent once the last tool is removed. */
  toDeclarations(): ToolDeclarations {
    return {
      ...(this.hasTools && { tools: [...this.tools.values()].map(toDeclaration) }),
      ...(this.hasActions && {
        agActions: [...this.actions.values()].map((action) => ({
          ...toDeclaration(action),
          hasRender: action.render !== undefined,
        })),
      }),
    };
  }
}

function add<T extends { readonly name: string }>(
  registered: Map<string, T>,
  added: T,
): () => void {
  registered.set(added.name, added);
  return () => {
    if (registered.get(added.name) === added) registered.delete(added.name);
  };
}

const toDeclaration = ({
  name,
  description,
  schema,
}: BrowserTool | Action): BrowserToolDeclaration => ({
  name,
  description,
  schema: toJsonSchema(schema),
});

function toJsonSchema(schema: ArgumentSchema): JsonObject {
  return isStandardSchema(schema)
    ? schema['~standard'].jsonSchema.input({ target: 'draft-2020-12' })
    : schema;
}

const isStandardSchema = (schema: ArgumentSchema): schema is StandardSchema =>
  '~standard' in schema;

/** Validates arguments; the model receives the message of the error that this throws. */
export async function parseArguments(schema: ArgumentSchema, args: JsonObject): Promise<unknown> {
  if (!isStandardSchema(schema)) return args;
  const result = await schema['~standard'].validate(args);
  if (!result.issues) return result.value;
  const lines = describeIssues(result.issues, 'arguments');
  throw new Error(`Invalid arguments: ${lines.join('; ')}`);
}

/** Validates synchronously; returns undefined if the arguments are invalid or the schema is asynchronous. */
export function tryParseArguments(
  schema: ArgumentSchema,
  args: JsonObject,
): { readonly value: unknown } | undefined {
  if (!isStandardSchema(schema)) return { value: args };
  const result = schema['~standard'].validate(args);
  return 'value' in result ? result : undefined;
}
