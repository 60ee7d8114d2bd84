import { z } from 'zod';

/** A plugin as its users may know it. */
export const PluginInfo = z
  .object({
    name: z.string(),
    title: z.string(),
    summary: z.string(),
    category: z.string(),
    visibility: z.enum(['always', 'on-demand']),
    stability: z.enum(['stable', 'beta', 'experimental']),
    examples: z.array(z.string()).describe('Things a user could say'),
    tags: z.array(z.string()),
  })
  .meta({ id: 'PluginInfo' });
export type PluginInfo = z.infer<typeof PluginInfo>;

/** Reply of `GET /plugins`. */
export const PluginList = z.object({ plugins: z.array(PluginInfo) }).meta({ id: 'PluginList' });
export type PluginList = z.infer<typeof PluginList>;
