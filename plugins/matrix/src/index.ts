import {
  definePlugin,
  type PluginMigrations,
  type SetupContext,
  sharedKey,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { FileReader } from './file-reader.js';
import { findUserHomeserver, getOracleHomeserver, MatrixConfig } from './homeserver.js';
import { MatrixRoomState, RoomDirectory } from './rooms.js';
import { createTurnFiles, filesMiddleware, TURN_FILES } from './turn-files.js';

const MATRIX_BASE_URL = sharedKey<string>('matrixBaseUrl');

const migrations: PluginMigrations = {
  async '0001-rooms'(tables) {
    await tables.schema
      .createTable('matrix_rooms')
      .addColumn('owner', 'text', (column) => column.primaryKey())
      .addColumn('room_id', 'text', (column) => column.notNull())
      .addColumn('user_id', 'text')
      .execute();
  },
};

/** Reads files from the user's homeserver, and stores room state on the oracle's homeserver. */
export const matrix = definePlugin({
  name: 'matrix',
  version: '0.1.0',
  manifest: {
    title: 'Matrix',
    summary: "Reads the files of a message from the user's Matrix homeserver.",
    whenToUse: ['a message has attachments'],
    category: 'integration',
    visibility: 'silent',
  },
  configSchema: MatrixConfig,
  migrations,
  setup: (context) => createServices(context),
  getSharedState: ({ services, config, fetch }) => ({
    ...(config.MATRIX_BASE_URL && MATRIX_BASE_URL.share(config.MATRIX_BASE_URL)),
    ...TURN_FILES.sharePerTurn((turn) => {
      const { rooms } = services;
      if (rooms) void inviteUser(turn, rooms, () => findUserHomeserver(turn.user, config, fetch));
      return createTurnFiles(turn, services);
    }),
  }),
  getMiddlewares: () => [filesMiddleware],
  getRoomState: ({ services }) => services.roomState,
});

function createServices({ config, database, oracle, fetch, logger }: SetupContext<MatrixConfig>) {
  const homeserver = getOracleHomeserver(config);
  const rooms = homeserver && new RoomDirectory({ database, oracle, fetch, homeserver });
  return {
    reader: new FileReader({ fetch, config }),
    rooms,
    roomState: rooms && new MatrixRoomState({ homeserver, rooms, fetch, logger }),
  };
}

/** Runs in the background: the room exists without the user, so the turn need not wait. */
async function inviteUser(
  turn: TurnContext,
  rooms: RoomDirectory,
  findHomeserver: Parameters<RoomDirectory['invite']>[1],
): Promise<void> {
  if (!turn.user.matrix?.accessToken) return;
  try {
    await rooms.invite(turn.user.did, findHomeserver);
  } catch (err) {
    turn.logger.warn({ err }, 'cannot invite the user to their Matrix room');
  }
}
