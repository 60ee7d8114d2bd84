import { RequestMethod } from '@nestjs/common';
import { z } from 'zod';
import type { TurnCondition } from '../context.js';
import type { Middleware } from '../middleware.js';
import type { OraclePlugin } from '../plugin.js';
import type { Route } from '../routes.js';
import { isStandardSchema, toJsonSchema } from '../schema.js';
import type { SubAgent, Tool } from '../tool.js';

const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const AGENT_NAME = /^[a-z][a-z0-9_]{0,39}$/;
const METHODS: ReadonlySet<unknown> = new Set(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']);

/** Returns what is wrong with a value. */
type Check = (value: unknown) => string | undefined;
type Fields = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Fields => typeof value === 'object' && value !== null;
const isFunction = (value: unknown) => typeof value === 'function';
const isText = (value: unknown) => typeof value === 'string' && value.trim() !== '';

/** The names of all members of a type: TypeScript reports one that is missing or too many. */
type Members<T> = Readonly<Record<keyof T, true>>;

const isPlainObject = (value: object) =>
  [Object.prototype, null].some((prototype) => prototype === Object.getPrototypeOf(value));

/** A misspelled member would be ignored. An instance of a class may have other members. */
function checkMembers(value: object, noun: string, members: object): string | undefined {
  if (!isPlainObject(value)) return undefined;
  const unknown = Object.keys(value).find((key) => !Object.hasOwn(members, key));
  return unknown && `unknown member ${unknown}: a ${noun} has ${Object.keys(members).join(', ')}`;
}

const checkFields =
  (noun: string, members: object, check: (fields: Fields) => string | undefined): Check =>
  (value) =>
    isObject(value) ? (check(value) ?? checkMembers(value, noun, members)) : `not a ${noun}`;

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

const TOOL_MEMBERS: Members<Tool> = {
  name: true,
  description: true,
  inputSchema: true,
  outputSchema: true,
  timeoutMs: true,
  visibility: true,
  event: true,
  needsApproval: true,
  delegates: true,
  reach: true,
  run: true,
};

export const checkTool = checkFields('tool', TOOL_MEMBERS, (tool) => {
  const { name, description, inputSchema } = tool;
  if (typeof name !== 'string' || !TOOL_NAME.test(name))
    return 'its name must consist of letters, digits, _ and -, at most 64';
  if (!isText(description)) return 'it has no description';
  if (!isFunction(tool.run)) return 'it has no run function';
  if (tool.outputSchema !== undefined && !isStandardSchema(tool.outputSchema))
    return 'its outputSchema is not a Standard Schema';
  if (!['undefined', 'boolean', 'function'].includes(typeof tool.needsApproval))
    return 'its needsApproval is neither a boolean nor a function';
  if (!['undefined', 'function'].includes(typeof tool.delegates))
    return 'its delegates is not a function';
  return checkReach(tool) ?? checkInputSchema(inputSchema);
});

const checkReach = ({ reach }: Fields) =>
  [undefined, 'session', 'sub-user'].some((allowed) => allowed === reach)
    ? undefined
    : "its reach must be 'session' or 'sub-user'";

function checkInputSchema(schema: unknown): string | undefined {
  if (!isObject(schema) && !isStandardSchema(schema)) return 'it has no inputSchema';
  if (Object.values(schema).some(isStandardSchema) && !isStandardSchema(schema))
    return 'its inputSchema is an object of schemas: wrap it in z.object()';
  try {
    const { type = 'object' } = isStandardSchema(schema) ? toJsonSchema(schema) : schema;
    return type === 'object' ? undefined : `its inputSchema is not of an object, but of: ${type}`;
  } catch (error) {
    return `its inputSchema cannot be used: ${error instanceof Error ? error.message : error}`;
  }
}

const AGENT_MEMBERS: Members<SubAgent> = {
  name: true,
  description: true,
  prompt: true,
  tools: true,
  model: true,
  visibility: true,
  reach: true,
};

export const checkSubAgent = checkFields('sub-agent', AGENT_MEMBERS, (agent) => {
  const { name, description, prompt, tools } = agent;
  if (typeof name !== 'string' || !AGENT_NAME.test(name))
    return 'its name must consist of lower case letters, digits and _, at most 40';
  if (!isText(description)) return 'it has no description';
  if (!isText(prompt) && !isFunction(prompt)) return 'it has no prompt';
  return checkReach(agent) ?? (tools === undefined ? undefined : checkTools(tools));
});

const MIDDLEWARE_MEMBERS: Members<Middleware> = {
  name: true,
  onFailure: true,
  reach: true,
  wrapModel: true,
  wrapTool: true,
};

const checkMiddleware = checkFields('middleware', MIDDLEWARE_MEMBERS, (middleware) => {
  if (!isText(middleware.name)) return 'it has no name';
  if (![undefined, 'fail', 'skip'].some((allowed) => allowed === middleware.onFailure))
    return "its onFailure must be 'fail' or 'skip'";
  const wrong = ['wrapModel', 'wrapTool'].find(
    (hook) => middleware[hook] !== undefined && !isFunction(middleware[hook]),
  );
  return checkReach(middleware) ?? (wrong && `its ${wrong} is not a function`);
});

const ROUTE_MEMBERS: Members<Route> = {
  method: true,
  path: true,
  auth: true,
  needsOwnKey: true,
  startsWork: true,
  summary: true,
  params: true,
  query: true,
  body: true,
  reply: true,
  status: true,
  errors: true,
  headers: true,
  handler: true,
  acceptsForms: true,
  acceptsFiles: true,
  acceptsManyValues: true,
  checksOrigin: true,
  formatError: true,
  mediaTypes: true,
  otherReplies: true,
};

const checkRoute = checkFields('route', ROUTE_MEMBERS, (route) => {
  const { method, path, auth, summary, handler } = route;
  if (!METHODS.has(method)) return `its method must be one of ${[...METHODS].join(', ')}`;
  if (typeof path !== 'string' || !path.startsWith('/')) return 'its path must start with /';
  if (!['user', 'access-key', 'public'].some((allowed) => allowed === auth))
    return "its auth must be 'user', 'access-key' or 'public'";
  // A wildcard would open every other route below it as well.
  if (auth === 'public' && path.includes('*')) return 'a public route cannot have a wildcard';
  if (!isText(summary)) return 'it has no summary';
  const wrong = checkOwnKey(route) ?? checkWork(route) ?? checkRouteSchemas(route);
  return wrong ?? (isFunction(handler) ? undefined : 'it has no handler');
});

function checkOwnKey({ auth, needsOwnKey = false }: Fields): string | undefined {
  if (typeof needsOwnKey !== 'boolean' && !isFunction(needsOwnKey))
    return 'its needsOwnKey must be true, false or a function of the body';
  const isPublic = needsOwnKey && auth === 'public';
  return isPublic ? 'a public route cannot need the own key of a caller' : undefined;
}

function checkWork({ startsWork = false }: Fields): string | undefined {
  if (typeof startsWork === 'boolean' || isFunction(startsWork)) return undefined;
  return 'its startsWork must be true, false or a function of the body';
}

function checkRouteSchemas(route: Fields): string | undefined {
  const isWrong = (key: string) => route[key] !== undefined && !(route[key] instanceof z.ZodType);
  const wrong = ['params', 'query', 'body', 'reply'].find(isWrong);
  if (!wrong) return undefined;
  return isStandardSchema(route[wrong])
    ? `its ${wrong} is not a schema of zod 4, which the API document needs`
    : `its ${wrong} is not a schema, such as z.object()`;
}

/** Compares objects only: a misspelled method would open no route, or all methods of it. */
const checkOpenRoute = checkFields('route', { path: true, method: true }, (route) => {
  const isMethod = typeof route.method === 'number' && route.method in RequestMethod;
  return !('method' in route) || isMethod
    ? undefined
    : `the method of ${route.path} must be a member of RequestMethod of @nestjs/common`;
});

const CONDITION_MEMBERS: Members<TurnCondition> = {
  clients: true,
  user: true,
  request: true,
  attachments: true,
  sessionState: true,
  shared: true,
};

/** A misspelled condition would be met in no turn. */
const checkCondition = checkFields('condition', CONDITION_MEMBERS, ({ attachments, ...lists }) => {
  if (![undefined, true].some((allowed) => allowed === attachments))
    return 'its attachments must be true';
  const wrong = Object.keys(lists).find((key) => !Array.isArray(lists[key] ?? []));
  return wrong && `its ${wrong} is not a list`;
});

const checkTools = checkArray('tool', checkTool);

/** What the host checks before it uses what a hook returned. */
export const hookChecks = {
  services: () => undefined,
  tools: checkTools,
  subAgents: checkArray('sub-agent', checkSubAgent),
  middlewares: checkArray('middleware', checkMiddleware),
  routes: checkArray('route', checkRoute),
  nestModules: checkArray('Nest module', (value) =>
    isObject(value) || isFunction(value) ? undefined : 'not a Nest module',
  ),
  openRoutes: (value: unknown) => {
    const isRoutes = Array.isArray(value) && value.every((route) => isText(route?.path ?? route));
    if (!isRoutes) return 'not an array of paths, or of paths and their methods';
    return value.filter(isObject).map(checkOpenRoute).find(Boolean);
  },
  when: checkCondition,
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

/** What is wrong with a plugin, and how to fix it. */
interface PluginError {
  readonly problem: string;
  readonly remedy: string;
}

/** Other checks report what is wrong with it. */
const unchecked: Check = () => undefined;
const checkHook: Check = (value) => (isFunction(value) ? undefined : 'is not a function');
const checkNames: Check = (value) =>
  Array.isArray(value) && value.every(isText) ? undefined : 'is not an array of names';
const checkConfigSchema: Check = (value) =>
  isObject(value) && isStandardSchema(value) && 'shape' in value
    ? undefined
    : 'is not a z.object()';
const checkTables: Check = (value) =>
  Array.isArray(value) && value.every((table) => isObject(table) && 'columnNames' in table)
    ? undefined
    : 'is not a list of tables that defineTable returns';

const checkMigrations: Check = (value) =>
  isObject(value) && !Array.isArray(value) && Object.values(value).every(isFunction)
    ? undefined
    : 'is not an object of functions';

const PLUGIN_MEMBERS: Readonly<Record<keyof OraclePlugin, Check>> = {
  name: unchecked,
  version: unchecked,
  manifest: unchecked,
  dependsOn: checkNames,
  softDependsOn: checkNames,
  configSchema: checkConfigSchema,
  autoDetect: checkHook,
  autoDetectHint: unchecked,
  tables: checkTables,
  migrations: checkMigrations,
  setup: checkHook,
  close: checkHook,
  routes: unchecked,
  when: unchecked,
  getTools: checkHook,
  getRequestTools: checkHook,
  getSubAgents: checkHook,
  getRequestSubAgents: checkHook,
  getMiddlewares: checkHook,
  getSharedState: checkHook,
  getNestModules: checkHook,
  getAuthExcludedRoutes: checkHook,
  getMessageGate: checkHook,
  getRoomState: checkHook,
  getJobs: checkHook,
  diagnose: checkHook,
  importedTables: checkNames,
  importRows: checkHook,
  exportUser: checkHook,
  eraseUser: checkHook,
};

/** Finds a misspelled hook of a plugin. */
export const checkPluginMembers = (plugin: OraclePlugin) =>
  checkMembers(plugin, 'plugin', PLUGIN_MEMBERS);

/** Finds something else that was passed in place of a plugin, and members of the wrong type. */
export function checkPluginObject(value: unknown): PluginError | undefined {
  if (isFunction(value) && /^class\b/.test(String(value)))
    return { problem: 'it is a class', remedy: 'Pass an instance of it, made with new' };
  if (isFunction(value))
    return { problem: 'it is a function', remedy: 'Call it, and pass the plugin that it returns' };
  if (!isObject(value))
    return { problem: `it is ${value}`, remedy: 'Pass a plugin: check its export and its import' };
  if (value instanceof Promise)
    return { problem: 'it is a promise', remedy: 'Await it, and pass the plugin' };
  if (value[Symbol.toStringTag as never] === 'Module')
    return {
      problem: `it is a module, with the exports ${Object.keys(value).join(', ') || '(none)'}`,
      remedy: 'Pass the export that is the plugin',
    };
  const errors = Object.entries(PLUGIN_MEMBERS).flatMap(([key, check]) => {
    const error = value[key] === undefined ? undefined : check(value[key]);
    return error ? [{ problem: `its ${key} ${error}`, remedy: 'Correct it' }] : [];
  });
  return errors[0];
}

/** Returns what is wrong with the name of a plugin. */
export function checkPluginName(name: unknown): PluginError | undefined {
  if (name === undefined) return { problem: 'it has no name', remedy: 'Give it one, such as todo' };
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
