const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const AGENT_NAME = /^[a-z][a-z0-9_]{0,39}$/;

type Check = (value: unknown) => string | undefined;
type Parts = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Parts => typeof value === 'object' && value !== null;
const isFunction = (value: unknown) => typeof value === 'function';
const isText = (value: unknown) => typeof value === 'string' && value.trim() !== '';

/** Something with parts, which pass. */
const withParts =
  (check: (parts: Parts) => string | undefined): Check =>
  (value) =>
    isObject(value) || isFunction(value) ? check(value as Parts) : 'it is none';

/** An array whose items all pass. */
const arrayOf =
  (noun: string, check: Check): Check =>
  (value) => {
    if (!Array.isArray(value)) return `not an array of ${noun}s`;
    const faults = value.map((item, i) => {
      const fault = check(item);
      return fault && `${noun} ${isText(item?.name) ? item.name : i + 1}: ${fault}`;
    });
    return faults.find((fault) => fault !== undefined);
  };

/** What is wrong with a tool. */
export const toolFault = withParts(({ name, description, inputSchema, run }) => {
  if (typeof name !== 'string' || !TOOL_NAME.test(name))
    return 'its name must be letters, digits, _ and -, at most 64';
  if (!isText(description)) return 'it has no description';
  if (!isObject(inputSchema)) return 'it has no inputSchema';
  return isFunction(run) ? undefined : 'it has no run function';
});

/** What is wrong with a sub-agent. */
export const subAgentFault = withParts(({ name, description, prompt, tools }) => {
  if (typeof name !== 'string' || !AGENT_NAME.test(name))
    return 'its name must be lower case, digits and _, at most 40';
  if (!isText(description)) return 'it has no description';
  if (!isText(prompt) && !isFunction(prompt)) return 'it has no prompt';
  return tools === undefined ? undefined : toolsCheck(tools);
});

const MIDDLEWARE_HOOKS = ['beforeModel', 'afterModel', 'wrapToolCall'];

const middlewareFault = withParts((middleware) => {
  if (!isText(middleware.name)) return 'it has no name';
  if (![undefined, 'fail', 'skip'].includes(middleware.onFailure as undefined))
    return "its onFailure must be 'fail' or 'skip'";
  const wrong = MIDDLEWARE_HOOKS.find(
    (hook) => middleware[hook] !== undefined && !isFunction(middleware[hook]),
  );
  return wrong && `its ${wrong} is no function`;
});

const toolsCheck = arrayOf('tool', toolFault);

/** What the host makes sure of before it uses what a hook returned. */
export const hookChecks = {
  tools: toolsCheck,
  subAgents: arrayOf('sub-agent', subAgentFault),
  middlewares: arrayOf('middleware', middlewareFault),
  nestModules: arrayOf(
    'Nest module',
    withParts(() => undefined),
  ),
  routes: (value: unknown) => {
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
