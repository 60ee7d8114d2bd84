import type { TurnContext, TurnState, TurnUser } from '@sibyl/plugin-kit';
import { UserPreferences } from '@sibyl/protocol';
import type { Message } from '../../store/messages/message.js';
import type { Session } from '../../store/sessions/session.js';
import { messageView } from '../message-view.js';
import type { TurnRequest } from '../turn-request.js';

/** What every plugin may know of a turn. */
export type TurnFacts = Pick<TurnContext, 'user' | 'session' | 'history' | 'request'>;

interface FactSources {
  readonly request: TurnRequest;
  readonly session: Session;
  /** The conversation up to and with the message to answer. */
  readonly messages: readonly Message[];
  readonly delegation: TurnUser['delegation'];
}

/** Frozen, since all plugins see the same. */
export function turnFacts({ request, session, messages, delegation }: FactSources): TurnFacts {
  const { id, roomId } = session;
  const { requestId, client } = request;
  return {
    user: Object.freeze({ ...userOf(request), ...(delegation && { delegation }) }),
    session: Object.freeze({ id, requestId, roomId, client }),
    history: Object.freeze(messages.slice(0, -1).map(messageView)),
    request: Object.freeze(partsOf(request)),
  };
}

/** What the turn knows beyond the conversation; preferences come from whoever shares them. */
export function stateOf(
  { message: { metadata = {} } }: TurnRequest,
  shared: Readonly<Record<string, unknown>>,
): TurnState {
  const text = (name: string) => {
    const value = metadata[name];
    return typeof value === 'string' && value !== '' ? { [name]: value.slice(0, 512) } : {};
  };
  return Object.freeze({
    userPreferences: UserPreferences.safeParse(shared.userPreferences ?? {}).data ?? {},
    ...text('editorRoomId'),
    ...text('spaceId'),
    ...text('currentEntityDid'),
    metadata,
  });
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

function partsOf({ message }: TurnRequest): TurnContext['request'] {
  const { tools, agActions, attachments = [], mcpInvocations = {} } = message;
  return { ...(tools && { tools }), ...(agActions && { agActions }), attachments, mcpInvocations };
}
