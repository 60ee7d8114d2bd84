import { isStandardSchema, toJsonSchema } from '../schema.js';

const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const AGENT_NAME = /^[a-z][a-z0-9_]{0,39}$/;
const METHODS: ReadonlySet<unknown> = new Set(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']);

/** Returns what is wrong with a value. */
type Check = (value: unknown) => string | undefined;
type Fields = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Fields => typeof value === 'object' && value !== null;
const isFunction = (value: unknown) => typeof value === 'function';
const isText = (value: unknown) => typeof value === 'string' && value.trim() !== '';

const checkFields =
  (noun: string, check: (fields: Fields) => string | undefined): Check =>
  (value) =>
    isObject(value) || isFunction(value) ? check(value as Fields) : `not a ${noun}`;

const checkArray =
  (noun: string, check: Check): Check =>
  (value) => {
    if (!Array.isArray(value)) return `not an array of ${noun}s`;
    const errors = value.map((item, i) => {
      const error = check(item);
      return error && `${noun} ${isText(item?.name) ? item.name : i + 1}: ${error}`;
    });
    return errors.find((error) => error !== undefined);
  };

export const checkTool = checkFields('tool', ({ name, description, inputSchema, ...tool }) => {
  if (typeof name !== 'string' || !TOOL_NAME.test(name))
    return 'its name must consist of letters, digits, _ and -, at most 64';
  if (!isText(description)) return 'it has no description';
  if (!isFunction(tool.run)) return 'it has no run function';
  if (tool.outputSchema !== undefined && !isStandardSchema(tool.outputSchema))
    return 'its outputSchema is not a Standard Schema';
  if (!['undefined', 'boolean', 'function'].includes(typeof tool.needsApproval))
    return 'its needsApproval is neither a boolean nor a function';
  return checkInputSchema(inputSchema);
});

function checkInputSchema(schema: unknown): string | undefined {
  if (!isStandardSchema(schema)) return isObject(schema) ? undefined : 'it has no inputSchema';
  try {
    toJsonSchema(schema);
    return undefined;
  } catch (error) {
    return `its inputSchema cannot be used: ${error instanceof Error ? error.message : error}`;
  }
}

export const checkSubAgent = checkFields('sub-agent', ({ name, description, prompt, tools }) => {
  if (typeof name !== 'string' || !AGENT_NAME.test(name))
    return 'its name must consist of lower case letters, digits and _, at most 40';
  if (!isText(description)) return 'it has no description';
  if (!isText(prompt) && !isFunction(prompt)) return 'it has no prompt';
  return tools === undefined ? undefined : checkTools(tools);
});

const checkMiddleware = checkFields('middleware', (middleware) => {
  if (!isText(middleware.name)) return 'it has no name';
  if (![undefined, 'fail', 'skip'].some((allowed) => allowed === middleware.onFailure))
    return "its onFailure must be 'fail' or 'skip'";
  const wrong = ['wrapModel', 'wrapTool'].find(
    (hook) => middleware[hook] !== undefined && !isFunction(middleware[hook]),
  );
  return wrong && `its ${wrong} is not a function`;
});

const checkRoute = checkFields('route', ({ method, path, auth, summary, handler }) => {
  if (!METHODS.has(method)) return `its method must be one of ${[...METHODS].join(', ')}`;
  if (typeof path !== 'string' || !path.startsWith('/')) return 'its path must start with /';
  if (!['user', 'access-key', 'public'].some((allowed) => allowed === auth))
    return "its auth must be 'user', 'access-key' or 'public'";
  // A wildcard would open every other route below it as well.
  if (auth === 'public' && path.includes('*')) return 'a public route cannot have a wildcard';
  if (!isText(summary)) return 'it has no summary';
  return isFunction(handler) ? undefined : 'it has no handler';
});

const checkTools = checkArray('tool', checkTool);

/** What the host checks before it uses what a hook returned. */
export const hookChecks = {
  services: () => undefined,
  tools: checkTools,
  subAgents: checkArray('sub-agent', checkSubAgent),
  middlewares: checkArray('middleware', checkMiddleware),
  routes: checkArray('route', checkRoute),
  nestModules: checkArray(
    'Nest module',
    checkFields('Nest module', () => undefined),
  ),
  openRoutes: (value: unknown) => {
    const isRoutes = Array.isArray(value) && value.every((route) => isText(route?.path ?? route));
    return isRoutes ? undefined : 'not an array of paths, or of paths and their methods';
  },
  sharedState: (value: unknown) =>
    isObject(value) && !Array.isArray(value) ? undefined : 'not an object',
  gate: (value: unknown) =>
    isObject(value) && isFunction(value.admit) ? undefined : 'it has no admit function',
  roomState: (value: unknown) =>
    isObject(value) && isFunction(value.read) && isFunction(value.update)
      ? undefined
      : 'it has no read and update functions',
} satisfies Record<string, Check>;

const PLUGIN_NAME = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;
const MAX_NAME_LENGTH = 40;

/** A plugin's users are `did:<name>:<user>`, so the names of real DID methods are reserved. */
const DID_METHODS = ['key', 'ixo', 'web', 'pkh'];

/** A plugin's tables are `<name>_…`, so the prefixes of the host's own tables are reserved. */
const HOST_TABLES = ['room', 'run', 'single', 'session', 'idempotency', 'kysely'];

const RESERVED: ReadonlySet<string> = new Set([...DID_METHODS, ...HOST_TABLES, 'host', 'main']);

/** Returns what is wrong with the name of a plugin, and how to fix it. */
export function checkPluginName(
  name: unknown,
): { readonly problem: string; readonly remedy: string } | undefined {
  if (typeof name !== 'string' || !PLUGIN_NAME.test(name) || name.length > MAX_NAME_LENGTH)
    return {
      problem: 'invalid plugin name',
      remedy: `Use lower case letters, digits and "-", at most ${MAX_NAME_LENGTH} characters`,
    };
  if (RESERVED.has(name))
    return {
      problem: 'its name is reserved',
      remedy: `Choose another name than ${[...RESERVED].join(', ')}`,
    };
  return undefined;
}
