import { z } from 'zod';
import { wholeNumber } from './identifiers.js';

/** Body of `DELETE /me`. */
export const EraseMe = z
  .strictObject({
    invocation: z
      .string()
      .min(1)
      .max(8192)
      .describe(
        'An invocation of the caller for this one request: the capability `oracle/erase` at `ixo:oracle:<DID of the oracle>`, base64 CAR',
      ),
  })
  .meta({ id: 'EraseMe' });
export type EraseMe = z.infer<typeof EraseMe>;

/** Reply of `DELETE /me`. */
export const Erased = z
  .object({
    rows: z.int().describe('How many rows were deleted or no longer say whose they were'),
    kept: z.array(
      z.object({
        table: z.string(),
        rows: z.int(),
        keeps: z.enum(['rows', 'without owner']),
        reason: z.string(),
      }),
    ),
  })
  .meta({ id: 'Erased', description: 'What was erased, and what the operator has to keep.' });
export type Erased = z.infer<typeof Erased>;

/** The progress of an import. Reply of `POST /me/import` and `GET /me/import/:id`. */
export const ImportJob = z
  .object({
    id: z.string(),
    status: z.enum(['running', 'finished', 'failed']),
    format: z.enum(['sibyl', 'chatgpt']).nullable().describe('Null until it was recognized'),
    /** Of the archive. */
    bytes: z.int().describe('Bytes of the content that were read'),
    totalBytes: z.int().describe('Bytes of the content that will be read; 0 until it is known'),
    stored: z.record(z.string(), z.int()).describe('How many new rows were stored, by table'),
    present: z.int().describe('Rows that were there already; they stay as they are'),
    refused: z.int().describe('Rows that are invalid or exceed a limit, and those of `skipped`'),
    skipped: z
      .record(z.string(), z.int())
      .optional()
      .describe('How many rows belong to plugins that are off at this oracle, by table'),
    signedBy: z.string().optional().describe('The did:key that signed the archive'),
    error: z.string().optional().describe('Why it failed'),
    createdAt: z.iso.datetime(),
    updatedAt: z.iso.datetime(),
  })
  .meta({ id: 'ImportJob' });
export type ImportJob = z.infer<typeof ImportJob>;

const usage = {
  turns: z.int(),
  inputTokens: z.int(),
  outputTokens: z.int(),
  cachedTokens: z.int().describe('Input tokens that the provider had cached'),
  cost: z.number().optional().describe('In the currency of the prices; absent without prices'),
};

/** Query of `GET /usage`. */
export const ReadUsage = z.strictObject({
  days: wholeNumber({ min: 1, max: 366 })
    .default(30)
    .describe('How many days in UTC, including today'),
});
export type ReadUsage = z.infer<typeof ReadUsage>;

/** Reply of `GET /usage`. */
export const Usage = z
  .object({
    since: z.iso.date().describe('The first day'),
    total: z.object(usage),
    days: z.array(z.object({ day: z.iso.date(), ...usage })).describe('Days with turns'),
    models: z
      .array(z.object({ model: z.string(), ...usage }))
      .describe('A turn counts for each model that it used'),
    sessions: z
      .array(z.object({ sessionId: z.string(), title: z.string().optional(), ...usage }))
      .describe('The 100 that used most; a deleted one has no title'),
  })
  .meta({ id: 'Usage', description: 'Turns, tokens and cost of the caller.' });
export type Usage = z.infer<typeof Usage>;

/** A fact that the oracle remembers about a user. */
export const Fact = z
  .object({
    id: z.string(),
    text: z.string(),
    createdAt: z.iso.datetime().describe('When it was learned'),
    updatedAt: z.iso.datetime().optional().describe('When the user changed it'),
    sessionId: z.string().optional().describe('The session in which it was learned'),
    subUser: z
      .string()
      .optional()
      .describe('Whom it is about, if not the caller: the `user` of an access key'),
  })
  .meta({ id: 'Fact' });
export type Fact = z.infer<typeof Fact>;

/** Reply of `GET /memory`. */
export const FactPage = z.object({ facts: z.array(Fact), total: z.int() }).meta({ id: 'FactPage' });
export type FactPage = z.infer<typeof FactPage>;
