import { wholeNumber } from '@sibyl/protocol';
import { z } from 'zod';

export const FACT_LENGTH = 1000;

/** Something the agent keeps of a user. */
export const Fact = z
  .object({ id: z.string(), text: z.string(), createdAt: z.iso.datetime() })
  .meta({ id: 'Fact' });
export type Fact = z.infer<typeof Fact>;

/** Reply of `GET /memory`, newest first. */
export const FactPage = z.object({ facts: z.array(Fact), total: z.int() }).meta({ id: 'FactPage' });
export type FactPage = z.infer<typeof FactPage>;

/** Query of `GET /memory`. */
export const ListFacts = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(50),
  offset: wholeNumber({ min: 0 }).default(0),
});
export type ListFacts = z.infer<typeof ListFacts>;

/** Reply of `DELETE /memory/:id`. */
export const FactForgotten = z.object({ message: z.string() }).meta({ id: 'FactForgotten' });
export type FactForgotten = z.infer<typeof FactForgotten>;
