import type { AgAction, BrowserTool as BrowserToolEntry, JsonObject } from '@sibyl/protocol';
import { isStandardSchema } from './check-arguments.js';
import type { Action, ArgumentSchema, BrowserTool } from './page-function.js';

/** What a message says about the functions of the page. */
export interface FunctionEntries {
  readonly tools?: BrowserToolEntry[];
  readonly agActions?: AgAction[];
}

/** The functions a page offers to the model. */
export class PageFunctions {
  readonly #tools = new Map<string, BrowserTool>();
  readonly #actions = new Map<string, Action>();
  #hasTools = false;
  #hasActions = false;

  /** Whether there is, or was, anything that could be called. */
  get isInUse(): boolean {
    return this.#hasTools || this.#hasActions;
  }

  addTool(tool: BrowserTool): () => void {
    this.#hasTools = true;
    return add(this.#tools, tool);
  }

  addAction(action: Action): () => void {
    this.#hasActions = true;
    return add(this.#actions, action);
  }

  tool(name: string): BrowserTool | undefined {
    return this.#tools.get(name);
  }

  action(name: string): Action | undefined {
    return this.#actions.get(name);
  }

  /** The host remembers what was declared: what was there and is gone must be said to be gone. */
  entries(): FunctionEntries {
    return {
      ...(this.#hasTools && { tools: [...this.#tools.values()].map(entryOf) }),
      ...(this.#hasActions && {
        agActions: [...this.#actions.values()].map((action) => ({
          ...entryOf(action),
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

const entryOf = ({ name, description, schema }: BrowserTool | Action): BrowserToolEntry => ({
  name,
  description,
  schema: jsonSchemaOf(schema),
});

function jsonSchemaOf(schema: ArgumentSchema): JsonObject {
  return isStandardSchema(schema)
    ? schema['~standard'].jsonSchema.input({ target: 'draft-2020-12' })
    : schema;
}
