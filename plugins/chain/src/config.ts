import { z } from 'zod';

/** The plugin's variables. */
export const ChainConfig = z.object({
  GATEWAY_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .refine((url) => !/[?#]/.test(url), { error: 'must have no query and no fragment' })
    .transform((url) => url.replace(/\/+$/, ''))
    .describe('Protocol query gateway that the agent asks the chain through'),
  GATEWAY_KEY: z.string().min(1).optional().describe('API key of that gateway, if it wants one'),
});
export type ChainConfig = z.output<typeof ChainConfig>;
