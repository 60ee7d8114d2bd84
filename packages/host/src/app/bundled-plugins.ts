import type { OraclePlugin } from '@sibyl/plugin-kit';
import { memory } from '@sibyl/plugin-memory';

/** The plugins that come with the host; nothing else in it knows their names. */
export const bundledPlugins: readonly OraclePlugin[] = [memory];
