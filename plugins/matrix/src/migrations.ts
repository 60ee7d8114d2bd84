import type { PluginMigrations } from '@sibyl/plugin-kit';

export const migrations: PluginMigrations = {
  async '0001-rooms'(tables) {
    await tables.schema
      .createTable('matrix_rooms')
      .addColumn('owner', 'text', (column) => column.primaryKey())
      .addColumn('room_id', 'text', (column) => column.notNull())
      .addColumn('user_id', 'text')
      .execute();
  },
};
