import type { Run as RunView } from '@sibyl/protocol';
import type { Run } from '../store/runs/run.js';

/** A stored run as the contract shows it (B4). */
export function runView(run: Run): RunView {
  return {
    runId: run.id,
    sessionId: run.sessionId,
    requestId: run.requestId,
    status: run.status,
    startedAt: new Date(run.startedAt).toISOString(),
    updatedAt: new Date(run.updatedAt).toISOString(),
    lastSeq: run.lastSeq,
    ...(run.messageId && { messageId: run.messageId }),
  };
}
