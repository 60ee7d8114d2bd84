import { definePlugin, type OraclePlugin } from '@sibyl/plugin-kit';

/** A plugin of which a test cares for nothing but its hooks. */
export const testPlugin = (name: string, parts: Partial<OraclePlugin>): OraclePlugin =>
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
    ...parts,
  });
