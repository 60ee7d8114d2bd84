import { z } from 'zod';

const Url = z
  .url({ protocol: /^https?$/ })
  .transform((url) => url.replace(/\/+$/, ''))
  .optional();

/** The variables of the plugin. */
export const MatrixConfig = z.object({
  MATRIX_BASE_URL: Url.describe(
    "The oracle's homeserver; also where files are looked up for users who name none",
  ),
  MATRIX_ACCESS_TOKEN: z
    .string()
    .min(1)
    .optional()
    .describe(
      "The oracle's own access token, used towards MATRIX_BASE_URL only; with it, preferences are kept in the user's room with the oracle",
    ),
});
export type MatrixConfig = z.output<typeof MatrixConfig>;
