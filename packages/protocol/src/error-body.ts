import { z } from 'zod';

/** Body of every error answer (contract B1). */
export const ErrorBody = z
  .object({
    statusCode: z.int(),
    message: z.union([z.string(), z.array(z.string())]),
    error: z.string(),
    code: z.string(),
    requestId: z.string(),
    claims: z.array(z.string()).optional(),
    outstandingClaims: z.array(z.string()).optional(),
  })
  .meta({ id: 'Error', description: 'What was wrong and, in `code`, a stable word for programs.' });
export type ErrorBody = z.infer<typeof ErrorBody>;
