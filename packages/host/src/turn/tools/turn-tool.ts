import type { Visibility } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import type { AgentTool } from '../../agent/agent.js';

/** Something a plugin brings to a turn for the agent to use. */
export interface TurnTool {
  readonly plugin: LoadedPlugin;
  readonly visibility: Visibility;
  readonly tool: AgentTool;
  /** About the length of its schema, which every model call sends. */
  readonly characters: number;
}
