import type { AgentCapabilities } from '@ag-ui/core';
import {
  definePlugin,
  defineRoute,
  defineTool,
  findPageUrl,
  type OracleFacts,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { AgAction } from '@sibyl/protocol';
import { z } from 'zod';
import { RunAgentInput, Runs } from './runs.js';

/** Of the session state: the actions that a message has declared. */
const KEY = 'actions';

/** Serves clients of the AG-UI protocol, and lets the agent call the actions that the user's page declares. */
export const agUi = definePlugin({
  name: 'ag-ui',
  version: '0.1.0',
  manifest: {
    title: 'Actions of the page',
    summary: "Does and shows things in the user's page.",
    whenToUse: ['something is better shown than described, and the page can show it'],
    category: 'core',
    // The actions describe themselves.
    visibility: 'silent',
  },
  setup: (context) => {
    const { surface, oracle } = context;
    return { runs: new Runs({ surface, pageUrl: findPageUrl(context) }), oracle };
  },
  when: { request: ['agActions'], sessionState: [KEY] },
  getRequestTools: (turn) => listActionTools(turn),
  routes: ({ services: { runs, oracle } }) => [...listRunRoutes(runs), createCapabilities(oracle)],
});

const AgUiObject = z.looseObject({}).meta({ id: 'AgUiObject' });
const After = z.strictObject({ after: z.coerce.number().int().min(0).default(0) });
const Cancelled = z.object({ success: z.boolean() });

const listRunRoutes = (runs: Runs) => [
  defineRoute({
    method: 'POST',
    path: '/v2/agent/run',
    auth: 'access-key',
    summary: 'Run the agent: AG-UI 1.0, as server-sent events',
    startsWork: true,
    acceptsFiles: true,
    body: RunAgentInput,
    acceptsManyValues: true,
    mediaTypes: ['text/event-stream'],
    errors: ['insufficient_credit', 'access_key_too_narrow', 'access_key_used_up', 'forbidden'],
    handler: ({ caller, body, signal }) => runs.start({ caller, signal }, body),
  }),
  defineRoute({
    method: 'GET',
    path: '/v2/runs/:runId',
    auth: 'access-key',
    summary: 'The events of a run after event number `after`, as server-sent events',
    query: After,
    mediaTypes: ['text/event-stream'],
    errors: ['run_not_found'],
    handler: ({ caller, params: { runId }, query: { after }, signal }) =>
      runs.join({ caller, signal }, runId, after),
  }),
  defineRoute({
    method: 'POST',
    path: '/v2/runs/:runId/cancel',
    auth: 'access-key',
    summary: 'Cancel a run that is running or waits for an answer',
    reply: Cancelled,
    errors: ['run_not_found'],
    handler: ({ caller, params: { runId }, signal }) => runs.cancel({ caller, signal }, runId),
  }),
];

const createCapabilities = (oracle: OracleFacts) =>
  defineRoute({
    method: 'GET',
    path: '/v2/agent/capabilities',
    auth: 'access-key',
    summary: 'What the agent supports of AG-UI',
    reply: AgUiObject,
    handler: () => ({ ...describeCapabilities(oracle) }),
  });

const describeCapabilities = ({ name }: OracleFacts): AgentCapabilities => ({
  identity: { name, type: 'sibyl' },
  transport: { streaming: true, resumable: true },
  tools: { supported: true, clientProvided: true, parallelCalls: true },
  reasoning: { supported: true, streaming: true },
  state: { snapshots: false, deltas: false, memory: true },
  humanInTheLoop: { supported: true, approvals: true, interrupts: true },
});

/** The actions (AG-UI) that the user's page declares with a message, as tools. */
const listActionTools = async (turn: TurnContext) => (await listActions(turn)).map(toTool);

const StoredActions = z.array(AgAction).default([]).catch([]);

/** The actions of this message, or of the last message that declared any. */
async function listActions({ request, sessionState }: TurnContext): Promise<readonly AgAction[]> {
  const stored = StoredActions.parse(await sessionState.get(KEY));
  const { agActions = stored } = request;
  // Most pages declare the same actions with every message.
  if (JSON.stringify(agActions) !== JSON.stringify(stored)) await sessionState.set(KEY, agActions);
  return agActions;
}

const toTool = ({ name, description, schema, hasRender }: AgAction) =>
  defineTool({
    name,
    description,
    inputSchema: schema,
    reach: 'session',
    event: 'action_call',
    // The host limits how long it waits for a page, and reports that in its error.
    timeoutMs: Number.POSITIVE_INFINITY,
    run: async (args, { client, emit, toolCallId, signal }) => {
      const result = await client.call({
        event: 'action_call',
        toolCallId,
        toolName: name,
        args,
        signal,
      });
      if (hasRender)
        emit.renderComponent({ eventId: toolCallId, componentName: name, args, status: 'done' });
      return result;
    },
  });
