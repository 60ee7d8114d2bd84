import { z } from 'zod';

/** A model this host can answer with. */
export const ModelInfo = z
  .object({
    id: z.string(),
    label: z.string(),
    provider: z.string(),
    isDefault: z.boolean(),
    vision: z.boolean(),
    tools: z.boolean(),
  })
  .meta({ id: 'ModelInfo' });
export type ModelInfo = z.infer<typeof ModelInfo>;

/** Reply of `GET /models`. */
export const ModelList = z
  .object({ models: z.array(ModelInfo), default: z.string() })
  .meta({ id: 'ModelList' });
export type ModelList = z.infer<typeof ModelList>;
