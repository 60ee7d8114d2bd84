import type { AgentPart } from './agent.js';

export type Warning = Extract<AgentPart, { type: 'warning' }>;

/** Tells the user that something was left out while the turn goes on (contract B4). */
export function warning(code: string, message: string): Warning {
  return { type: 'warning', code, message };
}
