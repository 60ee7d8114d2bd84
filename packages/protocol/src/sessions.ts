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

const fields = {
  agentName: z.string().trim().min(1).max(80).describe('What to call the agent'),
  userName: z.string().trim().min(1).max(80).describe('What to call the user'),
  language: z.string().trim().min(1).max(35).describe('BCP 47 tag or a name'),
  tone: z.string().trim().min(1).max(200),
  formality: z.enum(['casual', 'friendly', 'neutral', 'professional', 'formal', 'technical']),
  length: z.enum(['concise', 'balanced', 'detailed']),
  format: z.string().trim().min(1).max(200),
  customInstructions: z.string().trim().min(1).max(2000),
};

/** How a user wants the agent to behave. */
export const UserPreferences = z
  .object({ ...fields, updatedAt: Timestamp })
  .partial()
  .meta({ id: 'UserPreferences' });
export type UserPreferences = z.infer<typeof UserPreferences>;

/** A change of preferences: what is absent stays, null clears. */
export const PreferencesPatch = z
  .strictObject({
    agentName: fields.agentName.nullable(),
    userName: fields.userName.nullable(),
    language: fields.language.nullable(),
    tone: fields.tone.nullable(),
    formality: fields.formality.nullable(),
    length: fields.length.nullable(),
    format: fields.format.nullable(),
    customInstructions: fields.customInstructions.nullable(),
  })
  .partial()
  .meta({ id: 'PreferencesPatch' });
export type PreferencesPatch = z.infer<typeof PreferencesPatch>;
