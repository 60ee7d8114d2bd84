import type {
  DelegationStatus,
  RenderComponentEvent,
  Session,
  UserPreferences,
} from '@sibyl/protocol';
import type { ReactElement, ReactNode } from 'react';
import type { Action, ArgumentSchema, BrowserTool } from '../calls/page-function.js';
import type { Chat, ChatState } from '../chat/chat.js';
import type { Delegations, OracleClient } from '../oracle-client.js';
import type { OracleClientError } from '../oracle-client-error.js';
import type { Call } from '../turns/turn.js';

export declare function OracleProvider(props: {
  readonly client: OracleClient;
  readonly children?: ReactNode;
}): ReactElement;

/** The client of the surrounding provider. */
export declare function useOracle(): OracleClient;

/** What a hook has loaded, or why it could not. */
export interface Loaded {
  readonly isLoading: boolean;
  readonly error?: OracleClientError;
  refresh(): Promise<void>;
}

export interface UseSessions extends Loaded {
  /** Newest first, as far as loaded. */
  readonly sessions: readonly Session[];
  readonly total: number;
  readonly hasMore: boolean;
  loadMore(): Promise<void>;
  create(title?: string): Promise<Session>;
  remove(sessionId: string): Promise<void>;
}
export declare function useSessions(options?: { readonly pageSize?: number }): UseSessions;

export type UseChat = ChatState & Pick<Chat, 'send' | 'abort' | 'loadOlder' | 'refresh'>;
/** The conversation of a session; none while `sessionId` is undefined. Resumes by itself on reload. */
export declare function useChat(sessionId: string | undefined): UseChat;

/** Offers a tool while the component is mounted. */
export declare function useBrowserTool<Schema extends ArgumentSchema>(
  tool: BrowserTool<Schema>,
): void;
/** Offers an action while the component is mounted. */
export declare function useAction<Schema extends ArgumentSchema>(
  action: Action<Schema, ReactNode>,
): void;
/** Renders calls and components by the actions of `useAction`; nothing for those without render. */
export declare function useActionRenderer(): {
  renderCall(call: Call): ReactNode;
  renderComponent(component: RenderComponentEvent): ReactNode;
};

export interface UsePreferences extends Loaded {
  readonly preferences: UserPreferences;
}
export declare function usePreferences(): UsePreferences;

export interface UseDelegation extends Loaded {
  readonly status: DelegationStatus | undefined;
  readonly grant: Delegations['grant'];
  readonly revoke: Delegations['revoke'];
}
export declare function useDelegation(): UseDelegation;
