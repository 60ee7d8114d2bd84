import type { Attachment } from '@sibyl/protocol';
import type { MessageToSend } from '../oracle-client.js';
import { emptyTurn, type Turn } from '../turns/turn.js';

/** A turn that this client has sent or follows, from its beginning on. */
export interface LiveTurn {
  readonly requestId: string;
  readonly startedAt: string;
  /** What was sent from here. */
  readonly question?: { readonly content: string; readonly attachments: readonly Attachment[] };
  readonly turn: Turn;
  /** `lost` when reading it failed: before it had a run it was never sent, after that it goes on. */
  readonly phase: 'open' | 'rejoining' | 'ended' | 'lost';
}

/** A turn about to be sent. */
export function sentTurn(requestId: string, message: Exclude<MessageToSend, string>): LiveTurn {
  const { message: content, attachments = [] } = message;
  return { ...followedTurn(requestId), question: { content, attachments } };
}

/** A turn that somebody else has sent. */
export function followedTurn(requestId: string): LiveTurn {
  return { requestId, startedAt: new Date().toISOString(), turn: emptyTurn, phase: 'open' };
}

/** Whether more of it may come. */
export const isOpen = ({ phase }: LiveTurn): boolean => phase === 'open' || phase === 'rejoining';
