import type { ReplyPart } from '@sibyl/protocol';
import type { Run } from '../../store/runs/run.js';

/** Tells that what is stored of a run is not what was shown of it (contract B5). */
export function cacheInvalidation(
  { sessionId, requestId }: Pick<Run, 'sessionId' | 'requestId'>,
  messageId?: string,
) {
  return {
    event: 'message_cache_invalidation',
    data: {
      sessionId,
      requestId,
      ...(messageId !== undefined && { messageIds: [messageId] }),
      status: 'done',
    },
  } as const satisfies ReplyPart;
}
