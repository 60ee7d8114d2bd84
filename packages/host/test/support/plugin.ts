import { definePlugin, type OraclePlugin } from '@sibyl/plugin-kit';

/** A plugin for tests with the given hooks. */
export const testPlugin = (name: string, hooks: Partial<OraclePlugin>): OraclePlugin =>
  definePlugin({
    name,
    version: '1.0.0',
    manifest: {
      title: name,
      summary: `The plugin ${name}`,
      whenToUse: ['always'],
      category: 'test',
      visibility: 'always',
    },
    ...hooks,
  });
