import { z } from 'zod';
import { Timestamp } from './identifiers.js';

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
