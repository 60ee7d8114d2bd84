import {
  definePlugin,
  OracleError,
  repeat,
  type SetupContext,
  sharedKey,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { FILE_SOURCES, listFileTools, sendMedia } from '@sibyl/plugin-kit/chat';
import type { Chat, startChat } from './chat.js';
import { toFileChat } from './chat-files.js';
import { ChatLinks, listLinkRoutes } from './chat-links.js';
import { FileReader } from './file-reader.js';
import { HomeserverHealth } from './health.js';
import { findUserHomeserver, getOracleHomeserver, MatrixConfig } from './homeserver.js';
import { MatrixRoomState } from './room-state.js';
import { RoomDirectory, tables } from './rooms.js';
import { createTurnFiles, FILES, filesMiddleware, TURN_FILES } from './turn-files.js';

const MATRIX_BASE_URL = sharedKey<string>('matrixBaseUrl');

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
  tables,
  // Reads the files that it shares.
  softDependsOn: ['slack'],
  setup: (context) => createServices(context),
  close: async ({ rounds, roomState, chat }) => {
    await chat?.close();
    await roomState?.close();
    await rounds?.stop();
  },
  // If the operator names a homeserver, every user learns of its outage.
  when: ({ config }) =>
    config.MATRIX_BASE_URL
      ? undefined
      : { user: ['matrix'], attachments: true, sessionState: [FILES], shared: [FILE_SOURCES] },
  getSharedState: ({ services, config }) => ({
    ...(config.MATRIX_BASE_URL && MATRIX_BASE_URL.share(config.MATRIX_BASE_URL)),
    ...services.chat?.shared,
    ...TURN_FILES.sharePerTurn(async (turn) => {
      void inviteUser(turn, config, services);
      await warnOfOutage(turn, config, services);
      return createTurnFiles(turn, services);
    }),
  }),
  getRequestTools: (turn) =>
    turn.services.chat ? listFileTools(turn, toFileChat(turn.services.chat)) : [],
  getMiddlewares: ({ services: { chat } }) => [
    filesMiddleware,
    ...(chat ? [sendMedia(toFileChat(chat))] : []),
  ],
  routes: ({ services }) => listLinkRoutes(services.links),
  getRoomState: ({ services }) => services.roomState,
});

/** How often copies are tried that could not be made at once. */
const ROUND_MS = 5_000;

type Services = Awaited<ReturnType<typeof createServices>>;

async function createServices(context: SetupContext<MatrixConfig>) {
  const { config, database, hosts, oracle, logger, storedRooms: stored } = context;
  const health = new HomeserverHealth(context.fetch);
  const { fetch } = health;
  const homeserver = getOracleHomeserver(config);
  const rooms = homeserver && new RoomDirectory({ database, oracle, fetch, homeserver });
  if (config.MATRIX_CHAT && !homeserver)
    throw new Error('MATRIX_CHAT needs MATRIX_BASE_URL and MATRIX_ACCESS_TOKEN');
  const chat =
    homeserver && config.MATRIX_CHAT ? await openChat(context, { homeserver, health }) : undefined;
  const deps = { stored, database, hosts, fetch, logger, clock: database.now };
  const roomState = rooms && new MatrixRoomState({ ...deps, homeserver, rooms });
  return {
    health,
    reader: new FileReader({ health, config }),
    rooms,
    chat,
    links: chat?.links ?? createIdleLinks(context),
    roomState,
    rounds: roomState && repeat(() => roomState.copyDue(), { everyMs: ROUND_MS, logger }),
  };
}

/** Loaded only with MATRIX_CHAT, because it slows the start. */
async function openChat(...args: Parameters<typeof startChat>): Promise<Chat> {
  const { startChat } = await import('./chat.js');
  return startChat(...args);
}

/** Without the chat, accounts can be listed and removed, but not linked. */
const createIdleLinks = ({ database, delegatedTurns, oracle }: SetupContext<MatrixConfig>) =>
  new ChatLinks({
    database,
    delegatedTurns,
    oracle: oracle.did,
    readAccount: async () => {
      throw new OracleError('forbidden', { message: NO_CHAT });
    },
  });

const NO_CHAT =
  'This oracle does not answer in Matrix rooms; its operator can set MATRIX_CHAT=true';

/** Runs in the background: the room exists without the user, so the turn need not wait. */
async function inviteUser(
  turn: TurnContext,
  config: MatrixConfig,
  { rooms, health }: Services,
): Promise<void> {
  if (!rooms || !turn.user.matrix?.accessToken) return;
  try {
    await rooms.invite(turn.user.did, () => findUserHomeserver(turn.user, config, health.fetch));
  } catch (err) {
    turn.logger.warn({ err }, 'cannot invite the user to their Matrix room');
  }
}

/** Informs users of a homeserver that is down, and the model. */
async function warnOfOutage(
  turn: TurnContext,
  { MATRIX_BASE_URL: own }: MatrixConfig,
  { health, rooms }: Services,
): Promise<void> {
  const { homeServer, accessToken } = turn.user.matrix ?? {};
  const homeserver = homeServer ?? own;
  if (!homeserver || !health.isDown(homeserver)) return;
  const isConcerned = homeServer ?? accessToken ?? (await rooms?.find(turn.user.did));
  if (!isConcerned) return;
  turn.warn('homeserver_unavailable', OUTAGE);
  turn.degrade('Matrix', 'the homeserver does not answer; files in it cannot be read');
}

const OUTAGE =
  'Your Matrix homeserver does not answer. Files in it cannot be read now; preferences are those last known, and changes are copied to your room later.';
