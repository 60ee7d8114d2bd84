import { definePlugin, defineTool, type Tool, type TurnContext } from '@sibyl/plugin-kit';
import { AgAction } from '@sibyl/protocol';
import { z } from 'zod';

/** Actions (AG-UI) that the user's page declares with a message: what the agent may do to, or show in, the page. */
export const agUi = definePlugin({
  name: 'ag-ui',
  version: '0.1.0',
  manifest: {
    title: 'Actions of the page',
    summary: "Does and shows things in the user's page.",
    whenToUse: ['something is better shown than told, and the page can show it'],
    category: 'core',
    // What they do the actions say themselves.
    visibility: 'silent',
  },
  getRequestTools: async (turn) => (await declaredActions(turn)).map(toTool),
});

const toTool = ({ name, description, schema, hasRender }: AgAction): Tool =>
  defineTool({
    name,
    description,
    inputSchema: schema,
    event: 'action_call',
    // The host bounds the wait for a page, and says what a timeout means there.
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

const KEY = 'actions';
const Remembered = z.array(AgAction).default([]).catch([]);

/** The actions of the user's page: as this message declares them, else as the last one did that declared any. */
export async function declaredActions({
  request,
  sessionState,
}: TurnContext): Promise<readonly AgAction[]> {
  const remembered = Remembered.parse(await sessionState.get(KEY));
  const { agActions = remembered } = request;
  // Most pages declare the same with every message.
  if (JSON.stringify(agActions) !== JSON.stringify(remembered))
    await sessionState.set(KEY, agActions);
  return agActions;
}
