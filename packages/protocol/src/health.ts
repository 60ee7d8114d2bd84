import { z } from 'zod';
import { Timestamp } from './identifiers.js';

/** Reply of `GET /`. */
export const Landing = z
  .object({ status: z.literal('ok'), message: z.string(), timestamp: Timestamp })
  .meta({ id: 'Landing' });
export type Landing = z.infer<typeof Landing>;

/** Reply of `GET /health`; `unavailable` comes with status 503. */
export const Health = z
  .object({ status: z.enum(['ok', 'unavailable']), timestamp: Timestamp })
  .meta({ id: 'Health' });
export type Health = z.infer<typeof Health>;
