const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const AGENT_NAME = /^[a-z][a-z0-9_]{0,39}$/;

type Check = (value: unknown) => string | undefined;
type Parts = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Parts => typeof value === 'object' && value !== null;
const isFunction = (value: unknown) => typeof value === 'function';
const isText = (value: unknown) => typeof value === 'string' && value.trim() !== '';

/** An array whose items all pass. */
const arrayOf =
  (noun: string, check: (item: Parts) => string | undefined): Check =>
  (value) => {
    if (!Array.isArray(value)) return `not an array of ${noun}s`;
    const faults = value.map((item, i) => {
      const fault = isObject(item) || isFunction(item) ? check(item) : 'it is none';
      return fault && `${noun} ${isText(item?.name) ? item.name : i + 1}: ${fault}`;
    });
    return faults.find((fault) => fault !== undefined);
  };

function toolFault({ name, description, inputSchema, run }: Parts): string | undefined {
  if (typeof name !== 'string' || !TOOL_NAME.test(name))
    return 'its name must be letters, digits, _ and -, at most 64';
  if (!isText(description)) return 'it has no description';
  if (!isObject(inputSchema)) return 'it has no inputSchema';
  return isFunction(run) ? undefined : 'it has no run function';
}

function subAgentFault(agent: Parts): string | undefined {
  const { name, description, prompt, tools } = agent;
  if (typeof name !== 'string' || !AGENT_NAME.test(name))
    return 'its name must be lower case, digits and _, at most 40';
  if (!isText(description)) return 'it has no description';
  if (!isText(prompt) && !isFunction(prompt)) return 'it has no prompt';
  return tools === undefined ? undefined : toolsCheck(tools);
}

const MIDDLEWARE_HOOKS = ['beforeModel', 'afterModel', 'wrapToolCall'];

function middlewareFault(middleware: Parts): string | undefined {
  if (!isText(middleware.name)) return 'it has no name';
  const wrong = MIDDLEWARE_HOOKS.find(
    (hook) => middleware[hook] !== undefined && !isFunction(middleware[hook]),
  );
  return wrong && `its ${wrong} is no function`;
}

const toolsCheck = arrayOf('tool', toolFault);

/** What the host makes sure of before it uses what a hook returned. */
export const hookChecks = {
  tools: toolsCheck,
  subAgents: arrayOf('sub-agent', subAgentFault),
  middlewares: arrayOf('middleware', middlewareFault),
  nestModules: arrayOf('Nest module', () => undefined),
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
