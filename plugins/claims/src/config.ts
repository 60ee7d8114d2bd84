import { z } from 'zod';

/** The plugin's variables. */
export const ClaimsConfig = z.object({
  CLAIMS_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .transform((url) => url.replace(/\/+$/, ''))
    .describe('Service that claims are submitted to'),
  CRON_SECRET: z
    .string()
    .min(8, { error: 'must have at least 8 characters' })
    .describe('What whoever calls POST /claims/process must send as Authorization: Bearer …'),
});
export type ClaimsConfig = z.output<typeof ClaimsConfig>;
