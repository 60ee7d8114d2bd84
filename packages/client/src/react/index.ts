export { OracleProvider, type OracleProviderProps, useOracle } from './oracle-provider.js';
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
export { type UseChat, useChat } from './use-chat.js';
export { type ActionRenderer, useAction, useActionRenderer, useBrowserTool } from './use-tools.js';
