import { z } from 'zod';
import { Did, Id, Timestamp, wholeNumber } from './identifiers.js';

/** A session as every session route shows it. */
export const Session = z
  .object({
    sessionId: Id,
    title: z.string(),
    createdAt: Timestamp,
    lastUpdatedAt: Timestamp,
    oracleName: z.string(),
    oracleDid: Did,
    oracleEntityDid: Did.optional(),
    roomId: z.string(),
  })
  .meta({ id: 'Session' });
export type Session = z.infer<typeof Session>;

const Title = z.string().max(200).regex(/\S/, { error: 'must not be blank' }).trim();

/** Body of `POST /sessions`; may be absent. */
export const CreateSession = z
  .strictObject({ title: Title.optional() })
  .default({})
  .meta({ id: 'CreateSession' });
export type CreateSession = z.infer<typeof CreateSession>;

/** Body of `PATCH /sessions/:sessionId`. */
export const RenameSession = z.strictObject({ title: Title }).meta({ id: 'RenameSession' });
export type RenameSession = z.infer<typeof RenameSession>;

/** Query of `GET /sessions`. */
export const ListSessions = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(20),
  offset: wholeNumber({ min: 0 }).default(0),
});
export type ListSessions = z.infer<typeof ListSessions>;

/** Reply of `GET /sessions`: newest `lastUpdatedAt` first. */
export const SessionPage = z
  .object({ sessions: z.array(Session), total: z.int().min(0) })
  .meta({ id: 'SessionPage' });
export type SessionPage = z.infer<typeof SessionPage>;

/** Reply of `DELETE /sessions/:sessionId`. */
export const SessionDeleted = z.object({ message: z.string() }).meta({ id: 'SessionDeleted' });
export type SessionDeleted = z.infer<typeof SessionDeleted>;
