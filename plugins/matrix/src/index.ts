import {
  definePlugin,
  type PluginContext,
  type PluginMigrations,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { FileReader } from './file-reader.js';
import { MatrixConfig, oracleHomeserver, userHomeserver } from './homeserver.js';
import { MatrixRoomState, RoomDirectory } from './rooms.js';
import { filesMiddleware, turnFiles } from './turn-files.js';

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

type Context = Pick<PluginContext<MatrixConfig>, 'config' | 'database' | 'oracle' | 'fetch'>;

function directoryOf(context: Context): RoomDirectory | undefined {
  const homeserver = oracleHomeserver(context.config);
  return homeserver && new RoomDirectory({ ...context, homeserver });
}

/** In the background: the room is there without the user too, and a turn need not wait for it. */
async function inviteUser(
  turn: TurnContext<MatrixConfig>,
  rooms: RoomDirectory,
  fetch: PluginContext['fetch'],
): Promise<void> {
  if (!turn.user.matrix?.accessToken) return;
  try {
    await rooms.invite(turn.user.did, () => userHomeserver(turn.user, turn.config, fetch));
  } catch (err) {
    turn.logger.warn({ err }, 'user not invited to their Matrix room');
  }
}

/** Files of the user's homeserver, and rooms of the oracle's. */
export const matrix = definePlugin({
  name: 'matrix',
  version: '0.1.0',
  manifest: {
    title: 'Matrix',
    summary: "Reads the files a message brings from the user's Matrix homeserver.",
    whenToUse: ['a message comes with attachments'],
    category: 'integration',
    visibility: 'silent',
  },
  configSchema: MatrixConfig,
  migrations,
  getSharedState(context) {
    const rooms = directoryOf(context);
    const { fetch, config } = context;
    const reader = new FileReader({ fetch, config });
    return {
      ...(config.MATRIX_BASE_URL && { matrixBaseUrl: config.MATRIX_BASE_URL }),
      matrixFiles(turn: TurnContext<MatrixConfig>) {
        if (rooms) void inviteUser(turn, rooms, fetch);
        return turnFiles(turn, { rooms, reader });
      },
    };
  },
  getMiddlewares: () => [filesMiddleware],
  getRoomState(context) {
    const homeserver = oracleHomeserver(context.config);
    const rooms = directoryOf(context);
    if (!homeserver || !rooms) return undefined;
    const { fetch, logger } = context;
    return new MatrixRoomState({ homeserver, rooms, fetch, logger });
  },
});
