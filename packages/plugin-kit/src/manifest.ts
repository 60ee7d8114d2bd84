import { PluginPermission } from '@sibyl/protocol';
import { z } from 'zod';

const Line = z.string().trim().min(1).max(500);
const Lines = z.array(Line).max(20);

/** When the agent learns about a plugin: in every prompt, on request, or not at all. */
export const Visibility = z.enum(['always', 'on-demand', 'silent']);
export type Visibility = z.infer<typeof Visibility>;

/** The description of a plugin for the agent and its users. */
export const PluginManifest = z.strictObject({
  title: Line,
  summary: Line,
  whenToUse: Lines,
  whenNotToUse: Lines.optional(),
  /** Things a user could say. */
  examples: Lines.optional(),
  tags: Lines.optional(),
  /** What the plugin needs users to delegate; they see it with the reason, and grant it or not. */
  permissions: z.array(PluginPermission).max(20).optional(),
  category: Line,
  visibility: Visibility.default('on-demand'),
  stability: z.enum(['stable', 'beta', 'experimental']).default('stable'),
});
/** A manifest with its defaults filled in. */
export type PluginManifest = z.output<typeof PluginManifest>;
/** A manifest as a plugin writes it. */
export type PluginManifestInput = DeepReadonly<z.input<typeof PluginManifest>>;

/** So that a manifest can be declared with `as const`. */
type DeepReadonly<T> = T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> } : T;
