export {
  type Resource,
  type UseDelegation,
  type UsePreferences,
  type UseSessions,
  useDelegation,
  usePreferences,
  useSessions,
} from './resources.js';
export {
  OracleProvider,
  type OracleProviderProps,
  type UseChat,
  useChat,
  useOracle,
} from './use-chat.js';
export { type ActionRenderer, useAction, useActionRenderer, useBrowserTool } from './use-tools.js';
