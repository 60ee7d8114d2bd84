import {
  type AgAction,
  type BrowserTool as BrowserToolEntry,
  describeIssues,
  type JsonObject,
} from '@sibyl/protocol';

/** A schema of zod 4, or of any library that can validate and write JSON Schema (standardschema.dev). */
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

/** A JSON Schema: draft-07 or 2020-12. Arguments are then what the model sent, unchecked. */
export type JsonSchema = JsonObject & { readonly '~standard'?: never };

export type ArgumentSchema = StandardSchema | JsonSchema;

/** What `run` gets: what the schema says, or any object for a JSON Schema. */
export type InferArguments<Schema> =
  Schema extends StandardSchema<infer Output> ? Output : JsonObject;

/** The call a function of the page is run for. */
export interface CallContext {
  readonly sessionId: string;
  readonly requestId: string;
  readonly toolCallId: string;
}

interface ToolDefinition<Schema extends ArgumentSchema> {
  readonly name: string;
  /** Tells the model what it does and when to use it. */
  readonly description: string;
  readonly schema: Schema;
}

/** A tool that runs in the page: the model calls it, and gets what `run` returns. */
export interface BrowserTool<Schema extends ArgumentSchema = ArgumentSchema>
  extends ToolDefinition<Schema> {
  run(args: InferArguments<Schema>, call: CallContext): unknown;
}

/** What an action's `render` is given. */
export interface ActionView<Args = JsonObject> {
  readonly toolCallId: string;
  readonly status: 'running' | 'done' | 'error';
  readonly args: Args;
  /** What `run` returned, once it has. */
  readonly result?: unknown;
  readonly error?: string;
}

/** An AG-UI action: something the model may do to, or show in, the page. */
export interface Action<Schema extends ArgumentSchema = ArgumentSchema, Rendered = unknown>
  extends ToolDefinition<Schema> {
  /** Without it the action only shows something, and the model is told that it was shown. */
  run?(args: InferArguments<Schema>, call: CallContext): unknown;
  /** Shows the call, in whatever the page is made of. */
  render?(view: ActionView<InferArguments<Schema>>): Rendered;
}

/** What a message says about the functions of the page. */
interface ToolDeclarations {
  readonly tools?: BrowserToolEntry[];
  readonly agActions?: AgAction[];
}

/** The functions a page offers to the model. */
export class ToolRegistry {
  private readonly tools = new Map<string, BrowserTool>();
  private readonly actions = new Map<string, Action>();
  private hasTools = false;
  private hasActions = false;

  /** Whether there is, or was, anything that could be called. */
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

  tool(name: string): BrowserTool | undefined {
    return this.tools.get(name);
  }

  action(name: string): Action | undefined {
    return this.actions.get(name);
  }

  /** The host remembers what was declared: what was there and is gone must be said to be gone. */
  declare(): ToolDeclarations {
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

function add<T extends { readonly name: string }>(functions: Map<string, T>, added: T): () => void {
  functions.set(added.name, added);
  return () => {
    if (functions.get(added.name) === added) functions.delete(added.name);
  };
}

const toDeclaration = ({ name, description, schema }: BrowserTool | Action): BrowserToolEntry => ({
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

/** The arguments as the schema reads them; throws what the model should be told. */
export async function parseArguments(schema: ArgumentSchema, args: JsonObject): Promise<unknown> {
  if (!isStandardSchema(schema)) return args;
  const result = await schema['~standard'].validate(args);
  if (!result.issues) return result.value;
  const lines = describeIssues(result.issues, 'arguments');
  throw new Error(`The arguments do not fit: ${lines.join('; ')}`);
}

/** The same at once; nothing when they do not fit, or when the schema takes its time. */
export function tryParseArguments(
  schema: ArgumentSchema,
  args: JsonObject,
): { readonly value: unknown } | undefined {
  if (!isStandardSchema(schema)) return { value: args };
  const result = schema['~standard'].validate(args);
  return 'value' in result ? result : undefined;
}
