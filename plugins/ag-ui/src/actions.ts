import { defineTool, type TurnContext } from '@sibyl/plugin-kit';
import { AgAction } from '@sibyl/protocol';
import { z } from 'zod';

/** The actions (AG-UI) that the user's page declares with a message, as tools. */
export const listActionTools = async (turn: TurnContext) => (await listActions(turn)).map(toTool);

const KEY = 'actions';
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
