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
    activeMessageId: z
      .string()
      .optional()
      .describe(
        'The last message of the active path; a running turn has the id of its answer from its beginning',
      ),
    turnStatus: z
      .enum(['running', 'paused'])
      .optional()
      .describe('Only in lists: whether a turn is running or queued, or waits for an answer'),
    needsUser: z
      .boolean()
      .optional()
      .describe(
        'Only in lists: whether a paused turn asks the user, for an approval or an answer; others wait for a program',
      ),
  })
  .meta({ id: 'Session' });
export type Session = z.infer<typeof Session>;

const Title = z.string().max(200).regex(/\S/, { error: 'must not be blank' }).trim();

/** Body of `POST /sessions`; may be absent. */
export const CreateSession = z
  .strictObject({ title: Title.nullish().describe('`null` as if it were absent') })
  .default({})
  .meta({ id: 'CreateSession' });
export type CreateSession = z.infer<typeof CreateSession>;

/** Body of `PATCH /sessions/:sessionId`. */
export const ChangeSession = z
  .strictObject({
    title: Title.optional(),
    activeMessageId: Id.optional().describe(
      'Makes the path through this message the active one, up to the newest message behind it',
    ),
  })
  .refine((change) => Object.values(change).some((value) => value !== undefined), {
    error: 'needs title or activeMessageId',
  })
  .meta({
    id: 'ChangeSession',
    anyOf: [{ required: ['title'] }, { required: ['activeMessageId'] }],
  });
export type ChangeSession = z.infer<typeof ChangeSession>;

/** Body of `POST /sessions/:sessionId/fork`. */
export const ForkSession = z
  .strictObject({
    messageId: Id.describe('The last message to copy'),
    title: Title.optional().describe('Default: that of the session'),
  })
  .meta({ id: 'ForkSession' });
export type ForkSession = z.infer<typeof ForkSession>;

/** What happened to a session; `reload` if it is not known which ones changed. */
export const SessionChange = z.enum([
  'created',
  'titled',
  'renamed',
  'deleted',
  'switched',
  'turn_started',
  'turn_ended',
  'reload',
]);
export type SessionChange = z.infer<typeof SessionChange>;

/** A change in the list of the caller's sessions, on any host. */
export const SessionsChangedEvent = z
  .object({
    change: SessionChange,
    sessionId: Id.optional().describe('Absent for `reload`'),
    timestamp: Timestamp,
  })
  .meta({ id: 'SessionsChangedEvent' });
export type SessionsChangedEvent = z.infer<typeof SessionsChangedEvent>;

/** Query of `GET /search`. */
export const SearchMessages = z.strictObject({
  q: z
    .string()
    .min(1)
    .max(500)
    .describe(
      'Words, all of which must occur; "quoted words" must follow each other; the last may be the beginning of a word',
    ),
  limit: wholeNumber({ min: 1, max: 50 }).default(20),
  offset: wholeNumber({ min: 0, max: 1000 }).default(0),
});
export type SearchMessages = z.infer<typeof SearchMessages>;

/** A message or title that was found. */
export const SearchResult = z
  .object({
    sessionId: Id,
    title: z.string().describe('Of the session'),
    messageId: z.string().optional().describe('Absent if the title was found'),
    type: z.enum(['human', 'ai']).optional(),
    createdAt: Timestamp.optional().describe('Of the message'),
    snippet: z.string().describe('Plain text around the words'),
    highlights: z
      .array(z.tuple([z.int().min(0), z.int().min(0)]))
      .describe('Where the words are in `snippet`: start and end'),
    score: z.number().describe('Higher is better; only comparable within one search'),
  })
  .meta({ id: 'SearchResult' });
export type SearchResult = z.infer<typeof SearchResult>;

/** Reply of `GET /search`: the best first. */
export const SearchResults = z
  .object({ results: z.array(SearchResult), hasMore: z.boolean() })
  .meta({ id: 'SearchResults' });
export type SearchResults = z.infer<typeof SearchResults>;

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
