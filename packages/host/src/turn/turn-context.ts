import type { TurnContext, TurnState, TurnUser } from '@sibyl/plugin-kit';
import { UserPreferences } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { Message } from '../store/messages/message.js';
import type { Preferences } from '../store/rooms/preference-store.js';
import type { Session } from '../store/sessions/session.js';
import { messageView } from './message-view.js';
import type { TurnRequest } from './turn-request.js';

interface TurnContextParts {
  readonly request: TurnRequest;
  readonly session: Session;
  /** The conversation up to and with the message to answer. */
  readonly messages: readonly Message[];
  readonly preferences: Preferences | undefined;
  readonly authority: DelegatedAuthority;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** What plugins see of a turn, outside of any tool call. */
export function createTurnContext(parts: TurnContextParts): TurnContext {
  const { request, session, messages, authority, logger, signal } = parts;
  const { message, caller, requestId, client } = request;
  return {
    user: userOf(request),
    session: { id: session.id, requestId, roomId: session.roomId, client },
    history: messages.slice(0, -1).map(messageView),
    state: stateOf(message.metadata ?? {}, parts.preferences),
    request: {
      tools: message.tools ?? [],
      agActions: message.agActions ?? [],
      attachments: message.attachments ?? [],
      mcpInvocations: message.mcpInvocations ?? {},
    },
    ucan: authority.turnUcan(caller),
    logger: logger.child({ requestId, sessionId: session.id }),
    signal,
    toolCallId: '',
  };
}

function userOf({ caller, user }: TurnRequest): TurnUser {
  const { matrixHomeServer: homeServer, matrixAccessToken: accessToken } = user;
  return {
    did: caller.did,
    timezone: user.timezone ?? 'UTC',
    currentTime: new Date().toISOString(),
    ...((homeServer || accessToken) && {
      matrix: { ...(homeServer && { homeServer }), ...(accessToken && { accessToken }) },
    }),
  };
}

function stateOf(
  metadata: Readonly<Record<string, unknown>>,
  preferences: Preferences | undefined,
): TurnState {
  const text = (name: string) => {
    const value = metadata[name];
    return typeof value === 'string' && value !== '' ? { [name]: value.slice(0, 512) } : {};
  };
  return {
    userPreferences: UserPreferences.safeParse(preferences?.data ?? {}).data ?? {},
    ...text('editorRoomId'),
    ...text('spaceId'),
    ...text('currentEntityDid'),
    metadata,
  };
}
