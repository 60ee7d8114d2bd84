import { findPageUrl, repeat, type SetupContext, type SharedState } from '@sibyl/plugin-kit';
import { Inbox, InboxWorker, ResultAddresses } from '@sibyl/plugin-kit/chat';
import { ChatAnswerer } from './chat-answerer.js';
import { MatrixChannel } from './chat-channel.js';
import { MatrixMessage, toOwner, toTransactionId } from './chat-events.js';
import { ChatLinks } from './chat-links.js';
import { renderText } from './chat-render.js';
import { ChatSync } from './chat-sync.js';
import { ChatThreads, ChatUsers } from './chat-threads.js';
import type { HomeserverHealth } from './health.js';
import type { Homeserver, MatrixConfig } from './homeserver.js';

const ROUND_MS = 10_000;

interface ChatDeps {
  readonly homeserver: Homeserver;
  readonly health: HomeserverHealth;
}

/** The oracle as a member of rooms. */
export interface Chat {
  readonly channel: MatrixChannel;
  readonly threads: ChatThreads;
  readonly links: ChatLinks;
  /** What other plugins use. */
  readonly shared: SharedState;
  close(): Promise<void>;
}

/** Starts to answer in the rooms that the oracle is invited to. */
export function startChat(
  context: SetupContext<MatrixConfig>,
  { homeserver, health }: ChatDeps,
): Chat {
  const { database, turns, delegatedTurns, logger, config, hosts } = context;
  const oracle = context.oracle.did;
  const stopping = new AbortController();
  const { signal } = stopping;
  const { fetch, longPoll } = health;
  const channel = new MatrixChannel({ homeserver, fetch, signal });
  const inbox = createInbox(context);
  const threads = new ChatThreads(database);
  const readAccount = remember(() => channel.readAccount());
  const links = new ChatLinks({ database, delegatedTurns, oracle, readAccount });
  const users = new ChatUsers({ turns, delegatedTurns, links });
  const isAllowed = async (userId: string) => isListed(userId, config, await readAccount());
  const common = { inbox, channel, threads, isAllowed, readAccount };
  const results = new ResultAddresses({ database, table: 'matrix_results', chat: 'matrix' });
  const follow = (message: MatrixMessage): Promise<void> => worker.follow(message);
  const used = { users, links, results, turns, follow };
  const answerer = new ChatAnswerer({ ...common, ...used, page: findPageUrl(context) });
  const worker = new InboxWorker({
    inbox,
    logger,
    turns,
    answer: (waiting) => answerer.answer(waiting),
    describe: ({ eventId, roomId }: MatrixMessage) => ({ eventId, roomId }),
  });
  /** Its sender, or a moderator, has deleted a message that is being answered. */
  const onRedacted = async ({ roomId, eventId }: Pick<MatrixMessage, 'roomId' | 'eventId'>) => {
    const message = await inbox.findWaiting(eventId);
    // In another room, anyone may name it.
    if (message?.roomId !== roomId) return;
    await inbox.finish(message);
    const { user } = await users.find(message.sender);
    const sessionId = await threads.find({ ...message, owner: user.owner });
    if (sessionId !== undefined) await user.abort(sessionId);
  };
  const wiring = { homeserver, fetch, longPoll, database, hosts, oracle, worker, signal, logger };
  const syncing = new ChatSync({ ...common, ...wiring, onRedacted }).run();
  const rounds = repeat(() => worker.runRound(), { everyMs: ROUND_MS, logger });
  const close = async () => {
    stopping.abort();
    await syncing;
    // The last round may still start answers.
    await rounds.stop();
    await worker.close();
  };
  const shared = results.toChat(async (roomId, { id, markdown }) => {
    let sent = 0;
    for (const content of renderText(markdown))
      await channel.send({ roomId }, content, toTransactionId(id, `${sent++}`));
  });
  return { channel, threads, links, shared, close };
}

const createInbox = ({
  database,
  hosts,
}: Pick<SetupContext, 'database' | 'hosts'>): Inbox<MatrixMessage> =>
  new Inbox({
    database,
    table: 'matrix_inbox',
    clock: database.now,
    hosts,
    parse: (message) => MatrixMessage.parse(message),
    identify: ({ kind, eventId, roomId, sender, paused }) => {
      // That a room is encrypted is said once a day.
      const id = kind === 'encrypted' ? `encrypted ${roomId}` : eventId;
      return { owner: toOwner(sender), eventId: id, messageKey: id, paused };
    },
  });

/** Whether an account may talk to the oracle. */
export function isListed(
  userId: string,
  { MATRIX_CHAT_ALLOW: allowed }: Pick<MatrixConfig, 'MATRIX_CHAT_ALLOW'>,
  account: string,
): boolean {
  const server = readServer(userId);
  if (!allowed) return server === readServer(account);
  return allowed.some((entry) => entry === '*' || entry === userId || entry === server);
}

const readServer = (userId: string) => userId.slice(userId.indexOf(':') + 1);

/** Asks until there is an answer, then never again. */
function remember<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  return () => {
    asked ??= ask().catch((error) => {
      asked = undefined;
      throw error;
    });
    return asked;
  };
}
