export { type AuthExcludedRoute, definePlugin, type OraclePlugin } from './plugin.js';
export { defineTool, type Tool } from './tool.js';
export type {
  TurnContext,
  TurnLogger,
  TurnRequestParts,
  TurnSession,
  TurnState,
  TurnUser,
} from './turn-context.js';
export type { JsonValue, MintRequest, TurnUcan, WantedCapability } from './turn-ucan.js';
