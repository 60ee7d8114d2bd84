import type { BootFault } from '../config/boot-error.js';

/** What is wrong with a plugin, told to the operator. */
export const pluginFault = (plugin: string, problem: string, remedy: string): BootFault => ({
  subject: `plugin ${plugin}`,
  problem,
  remedy,
});

/** How to go on without a plugin. */
export const switchOff = (plugin: string) => `switch it off with FEATURES=${plugin}=false`;

export const reasonOf = (error: unknown) =>
  error instanceof Error ? error.message : String(error);
