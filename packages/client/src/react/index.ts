export { OracleProvider, type OracleProviderProps, useOracle } from './oracle-provider.js';
export { useAction } from './use-action.js';
export { type ActionRenderer, useActionRenderer } from './use-action-renderer.js';
export { useBrowserTool } from './use-browser-tool.js';
export { type UseChat, useChat } from './use-chat.js';
export { type UseDelegation, useDelegation } from './use-delegation.js';
export type { Loaded } from './use-loaded.js';
export { type UsePreferences, usePreferences } from './use-preferences.js';
export { type UseSessions, useSessions } from './use-sessions.js';
