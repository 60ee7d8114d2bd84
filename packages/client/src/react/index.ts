export { OracleProvider, type OracleProviderProps, useOracle } from './oracle-provider.js';
export {
  type Resource,
  type UseDelegation,
  type UsePreferences,
  type UseSessions,
  useDelegation,
  usePreferences,
  useSessions,
} from './resources.js';
export { type UseChat, useChat } from './use-chat.js';
export { type ActionRenderer, useAction, useActionRenderer, useBrowserTool } from './use-tools.js';
