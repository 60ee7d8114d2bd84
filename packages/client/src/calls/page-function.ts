import type { JsonObject } from '@sibyl/protocol';

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

export type StandardResult<Output> =
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
export type ArgumentsOf<Schema> = Schema extends StandardSchema<infer Output> ? Output : JsonObject;

/** The call a function of the page is run for. */
export interface CallContext {
  readonly sessionId: string;
  readonly requestId: string;
  readonly toolCallId: string;
}

interface PageFunction<Schema extends ArgumentSchema> {
  readonly name: string;
  /** Tells the model what it does and when to use it. */
  readonly description: string;
  readonly schema: Schema;
}

/** A tool that runs in the page: the model calls it, and gets what `run` returns. */
export interface BrowserTool<Schema extends ArgumentSchema = ArgumentSchema>
  extends PageFunction<Schema> {
  run(args: ArgumentsOf<Schema>, call: CallContext): unknown;
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
  extends PageFunction<Schema> {
  /** Without it the action only shows something, and the model is told that it was shown. */
  run?(args: ArgumentsOf<Schema>, call: CallContext): unknown;
  /** Shows the call, in whatever the page is made of. */
  render?(view: ActionView<ArgumentsOf<Schema>>): Rendered;
}
