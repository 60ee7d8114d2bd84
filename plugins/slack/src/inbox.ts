import type { HostMessages, PluginDatabase } from '@sibyl/plugin-kit';
import { defineResultTable, Inbox, inboxColumns } from '@sibyl/plugin-kit/chat';
import { defineTable, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import type { Kysely } from 'kysely';
import { SlackMessage } from './delivery.js';

interface InboxDeps {
  readonly database: PluginDatabase<SlackTables>;
  readonly clock: () => number;
  readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>;
}

export type SlackInbox = Inbox<SlackMessage>;

/** The messages from Slack; one may be delivered as several events, and again for an hour. */
export const createInbox = ({ database, clock, hosts }: InboxDeps): SlackInbox =>
  new Inbox({
    database,
    table: 'slack_inbox',
    clock,
    hosts,
    parse: (message) => SlackMessage.parse(message),
    identify: (message) => ({
      owner: getOwner(message),
      eventId: message.eventId,
      messageKey: getMessageKey(message),
      paused: getPausedTurn(message),
    }),
  });

function getPausedTurn(message: SlackMessage) {
  const { paused, sessionId } = message;
  return paused && sessionId ? { owner: getOwner(message), sessionId, ...paused } : undefined;
}

type PausedPlace = Pick<SlackMessage, 'team' | 'user' | 'channel' | 'thread'> & {
  readonly sessionId: string;
};

/** What the inbox keeps until a paused turn continues or ends: where to show it, and the posts to change. */
export function toContinuation(
  { team, user, channel, thread, sessionId }: PausedPlace,
  paused: NonNullable<SlackMessage['paused']>,
): SlackMessage {
  const eventId = `after ${paused.runId}`;
  const place = { team, user, channel, ...(thread && { thread }) };
  return { eventId, ts: eventId, text: '', ...place, sessionId, paused };
}

/** The user of a message as the host knows them. */
export const getOwner = ({ team, user }: Pick<SlackMessage, 'team' | 'user'>) =>
  `did:slack:${team}:${user}`;

/** Identifies a message across deliveries. */
export const getMessageKey = ({ team, channel, ts }: SlackMessage) => `${team}:${channel}:${ts}`;

const inbox = defineTable('slack_inbox', inboxColumns, {
  key: ['owner', 'event_id'],
  indexes: {
    slack_inbox_by_message: { on: ['owner', 'message_key'], isUnique: true },
    slack_inbox_by_state: { on: ['state', 'lease_until'] },
  },
});

const threads = defineTable(
  'slack_threads',
  { owner: text(), channel: text(), thread: text(), session_id: text() },
  { key: ['owner', 'channel', 'thread'] },
);

const results = defineResultTable('slack_results');

/** The plugin's tables; timestamps are milliseconds. */
export const tables = [inbox, threads, results] as const;

export type SlackTables = TableTypes<typeof tables>;

export type Tables = Kysely<SlackTables>;
