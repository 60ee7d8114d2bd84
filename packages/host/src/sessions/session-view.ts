import type { Session as SessionView } from '@sibyl/protocol';
import type { Session } from '../store/sessions/session.js';

/** A stored session as the contract shows it (B2). */
export function sessionView(session: Session, oracleName: string): SessionView {
  return {
    sessionId: session.id,
    title: session.title,
    createdAt: new Date(session.createdAt).toISOString(),
    lastUpdatedAt: new Date(session.lastUpdatedAt).toISOString(),
    oracleName: session.oracleName ?? oracleName,
    oracleDid: session.oracleDid,
    ...(session.oracleEntityDid && { oracleEntityDid: session.oracleEntityDid }),
    roomId: session.roomId,
  };
}
