import { type ReplyPart, type ServerEventName, serverEvents } from '@sibyl/protocol';
import type { z } from 'zod';
import type { Position } from './position.js';

type Payload<Name extends ServerEventName> = z.output<(typeof serverEvents)[Name]['payload']>;

/** What the clients of a session are told. */
export type ServerEvent<Name extends ServerEventName = ServerEventName> = {
  [N in Name]: {
    readonly event: N;
    readonly payload: Payload<N>;
    /** Of the run's frame that says the same, if one does. */
    readonly position?: Position;
  };
}[Name];

/** A frame as the session's sockets are told it; undefined for those that only a stream has. */
export function toServerEvent(part: ReplyPart, position: Position): ServerEvent | undefined {
  if (!Object.hasOwn(serverEvents, part.event)) return undefined;
  // Pages run whatever `action_call` they are sent, so how one ended is not sent (contract B5).
  if (part.event === 'action_call' && part.data.status !== 'isRunning') return undefined;
  return { event: part.event, payload: part.data, position } as ServerEvent;
}

/** What goes on the wire: the payload, or its envelope (contract B5). */
export function wireForm({ event, payload }: ServerEvent): unknown {
  return serverEvents[event].wrapping === 'enveloped' ? { eventName: event, payload } : payload;
}
