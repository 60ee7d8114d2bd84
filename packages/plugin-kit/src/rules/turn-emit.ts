import type { ReplyPart } from '@sibyl/protocol';
import type { TurnEmit } from '../turn-context.js';

/** Where in a conversation a turn is. */
interface TurnPlace {
  readonly sessionId: string;
  readonly requestId: string;
}

/** The `emit` of a turn's context: each method says one kind of frame, with the turn's place in it. */
export function turnEmit(
  { sessionId, requestId }: TurnPlace,
  emit: (part: ReplyPart) => void,
): TurnEmit {
  const place = { sessionId, requestId };
  const timestamp = () => new Date().toISOString();
  return {
    toolCall: (data) => emit({ event: 'tool_call', data: { ...data, ...place } }),
    actionCall: (data) => emit({ event: 'action_call', data: { ...data, ...place } }),
    renderComponent: (data) => emit({ event: 'render_component', data: { ...data, ...place } }),
    reasoning: (data) =>
      emit({ event: 'reasoning', data: { ...data, ...place, timestamp: timestamp() } }),
    browserToolCall: (data) => emit({ event: 'browser_tool_call', data: { ...data, ...place } }),
    router: (data) => emit({ event: 'router_update', data: { ...data, ...place } }),
    messageCacheInvalidation: (data) =>
      emit({ event: 'message_cache_invalidation', data: { ...data, ...place, status: 'done' } }),
  };
}
