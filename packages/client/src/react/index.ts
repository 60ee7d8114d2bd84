export {
  type Resource,
  type UseApprovals,
  type UseDelegation,
  type UsePreferences,
  type UseSearch,
  type UseSessions,
  type UseSessionsOptions,
  useApprovals,
  useDelegation,
  usePreferences,
  useResource,
  useSearch,
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
