import type { OraclePlugin } from '@sibyl/plugin-kit';
import { matrix } from '@sibyl/plugin-matrix';
import { mcp } from '@sibyl/plugin-mcp';
import { memory } from '@sibyl/plugin-memory';

/** The plugins that come with the host; nothing else in it knows their names. */
export const bundledPlugins: readonly OraclePlugin[] = [memory, matrix, mcp];
