import { definePlugin, defineTool, type TurnContext } from '@sibyl/plugin-kit';
import { BrowserTool } from '@sibyl/protocol';
import { z } from 'zod';

/** Of the session state: the tools that a message has declared. */
const KEY = 'tools';

/** Lets the agent call tools that the user's page declares with a message and runs itself. */
export const browserTools = definePlugin({
  name: 'browser-tools',
  version: '0.1.0',
  manifest: {
    title: 'Browser tools',
    summary: "Runs tools of the user's page, in the user's own tab.",
    whenToUse: ['the user asks for something that their page can do'],
    category: 'core',
    // The tools describe themselves.
    visibility: 'silent',
  },
  when: { request: ['tools'], sessionState: [KEY] },
  getRequestTools: async (turn) => (await listTools(turn)).map(toTool),
});

const StoredTools = z.array(BrowserTool).default([]).catch([]);

/** The tools of this message, or of the last message that declared any. */
async function listTools({ request, sessionState }: TurnContext): Promise<readonly BrowserTool[]> {
  const stored = StoredTools.parse(await sessionState.get(KEY));
  const { tools = stored } = request;
  // Most pages declare the same tools with every message.
  if (JSON.stringify(tools) !== JSON.stringify(stored)) await sessionState.set(KEY, tools);
  return tools;
}

const toTool = ({ name, description, schema }: BrowserTool) =>
  defineTool({
    name,
    description,
    inputSchema: schema,
    reach: 'session',
    // The host limits how long it waits for a page, and reports that in its error.
    timeoutMs: Number.POSITIVE_INFINITY,
    run: (args, { client, toolCallId, signal }) =>
      client.call({ event: 'browser_tool_call', toolCallId, toolName: name, args, signal }),
  });
