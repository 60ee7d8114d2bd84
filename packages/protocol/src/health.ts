import { z } from 'zod';
import { Timestamp } from './identifiers.js';

/** Reply of `GET /`. */
export const Landing = z
  .object({ status: z.literal('ok'), message: z.string(), timestamp: Timestamp })
  .meta({ id: 'Landing' });
export type Landing = z.infer<typeof Landing>;

/** Reply of `GET /health`. */
export const Health = z
  .object({ status: z.enum(['ok', 'unavailable']), timestamp: Timestamp })
  .meta({ id: 'Health' });
export type Health = z.infer<typeof Health>;

const ReadinessCheck = z
  .object({ status: z.enum(['ok', 'failing', 'unknown']), message: z.string() })
  .meta({ id: 'ReadinessCheck' });
export type ReadinessCheck = z.infer<typeof ReadinessCheck>;

/** Reply of `GET /health/ready`; `not_ready` comes with status 503. */
export const Readiness = z
  .object({
    status: z.enum(['ready', 'not_ready']),
    timestamp: Timestamp,
    checks: z.object({
      host: ReadinessCheck,
      store: ReadinessCheck,
      disk: ReadinessCheck,
      model: ReadinessCheck,
      plugins: ReadinessCheck,
    }),
  })
  .meta({ id: 'Readiness' });
export type Readiness = z.infer<typeof Readiness>;
