import type { TurnContext } from '@sibyl/plugin-kit';
import { BrowserTool } from '@sibyl/protocol';
import { z } from 'zod';

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
