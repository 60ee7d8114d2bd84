export { type AuthExcludedRoute, definePlugin, type OraclePlugin } from './plugin.js';
export type { JsonValue, MintRequest, TurnUcan, WantedCapability } from './turn-ucan.js';
