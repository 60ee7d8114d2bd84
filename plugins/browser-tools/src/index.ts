import { definePlugin, defineTool, type Tool, type TurnContext } from '@sibyl/plugin-kit';
import { BrowserTool } from '@sibyl/protocol';
import { z } from 'zod';

/** Tools that the user's page declares with a message and runs when the agent calls them. */
export const browserTools = definePlugin({
  name: 'browser-tools',
  version: '0.1.0',
  manifest: {
    title: 'Browser tools',
    summary: "Runs what the user's page offers, in the user's own tab.",
    whenToUse: ['the user asks for something that their page can do'],
    category: 'core',
    // What they do the tools say themselves.
    visibility: 'silent',
  },
  getRequestTools: async (turn) => (await declaredTools(turn)).map(toTool),
});

const toTool = ({ name, description, schema }: BrowserTool): Tool =>
  defineTool({
    name,
    description,
    inputSchema: schema,
    // The host bounds the wait for a page, and says what a timeout means there.
    timeoutMs: Number.POSITIVE_INFINITY,
    run: (args, { client, toolCallId, signal }) =>
      client.call({ event: 'browser_tool_call', toolCallId, toolName: name, args, signal }),
  });

const KEY = 'tools';
const Remembered = z.array(BrowserTool).default([]).catch([]);

/** The tools of the user's page: as this message declares them, else as the last one did that declared any. */
export async function declaredTools({
  request,
  sessionState,
}: TurnContext): Promise<readonly BrowserTool[]> {
  const remembered = Remembered.parse(await sessionState.get(KEY));
  const { tools = remembered } = request;
  // Most pages declare the same with every message.
  if (JSON.stringify(tools) !== JSON.stringify(remembered)) await sessionState.set(KEY, tools);
  return tools;
}
