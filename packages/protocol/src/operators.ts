import { z } from 'zod';
import { Readiness } from './discovery.js';
import { Did, Timestamp, wholeNumber } from './identifiers.js';

const did = z.string().describe('A DID');

/** What one host reports about itself. */
export const HostReport = z
  .object({
    version: z.string(),
    startedAt: Timestamp,
    readiness: Readiness.describe('What works and what does not'),
    turns: z.object({ running: z.int(), queued: z.int() }),
    sockets: z.int(),
    streams: z.int(),
    storeOutage: z
      .object({ since: Timestamp, failures: z.int(), reason: z.string() })
      .optional()
      .describe('Set while the store is unavailable: what the last error said'),
    busLagMs: z.number().describe('How long a message to another host takes'),
    memoryBytes: z.int(),
    errors: z
      .array(z.object({ code: z.string(), count: z.int(), lastAt: Timestamp }))
      .describe('Requests that were answered with an error in the last hour, by its code'),
    limited: z
      .array(z.object({ did, count: z.int(), lastAt: Timestamp }))
      .describe('Users that reached a limit in the last hour, most often first'),
    modelFailures: z
      .array(
        z.object({
          model: z.string(),
          cause: z.string(),
          detail: z.string().describe('What the provider or the system said, without keys'),
          count: z.int(),
          lastAt: Timestamp,
        }),
      )
      .describe('Calls of models that failed in the last hour, also those that were tried again'),
  })
  .meta({ id: 'HostReport' });
export type HostReport = z.infer<typeof HostReport>;

export const OperatorHost = HostReport.extend({
  hostId: z.string(),
  state: z
    .enum(['running', 'lost', 'unknown'])
    .describe(
      '`lost`: it ended without saying so, or is disconnected from the database. `unknown`: the store does not answer; this is what the host reported before',
    ),
  updatedAt: Timestamp.describe('When it last reported itself'),
}).meta({ id: 'OperatorHost' });
export type OperatorHost = z.infer<typeof OperatorHost>;

/** Reply of `GET /operator/hosts`. */
export const OperatorHosts = z
  .object({ hosts: z.array(OperatorHost) })
  .meta({ id: 'OperatorHosts' });
export type OperatorHosts = z.infer<typeof OperatorHosts>;

const usage = {
  turns: z.int(),
  inputTokens: z.int(),
  outputTokens: z.int(),
  cost: z.number().optional().describe('In the currency of the prices; absent without prices'),
};

/** Why turns have no complete answer. */
export const TurnFailure = z
  .object({
    cause: z.string().describe('A code'),
    text: z.string().describe('What it means'),
    count: z.int(),
    lastAt: Timestamp,
    lastMessage: z.string().optional().describe('The message to the user of the last one'),
  })
  .meta({ id: 'TurnFailure' });
export type TurnFailure = z.infer<typeof TurnFailure>;

/** Something that does not work now. */
export const FailedCheck = z
  .object({
    hostId: z.string(),
    check: z.enum(['host', 'store', 'disk', 'model', 'plugins', 'lost']),
    text: z.string().describe('What is wrong, with what the system or the provider said'),
    since: Timestamp.optional(),
  })
  .meta({ id: 'FailedCheck' });
export type FailedCheck = z.infer<typeof FailedCheck>;

/** How long users wait for the first text of an answer. */
const speed = { medianMs: z.int(), p95Ms: z.int(), turns: z.int() };

/** Query of `GET /operator/speed`. */
export const ListSpeed = z.strictObject({
  hours: wholeNumber({ min: 1, max: 168 }).default(24),
});
export type ListSpeed = z.infer<typeof ListSpeed>;

/** Reply of `GET /operator/speed`. */
export const OperatorSpeed = z
  .object({
    stepMs: z.int().describe('The time that each point covers'),
    points: z
      .array(z.object({ at: Timestamp.describe('Its begin'), ...speed }))
      .describe('Oldest first; times without turns have no point'),
  })
  .meta({ id: 'OperatorSpeed' });
export type OperatorSpeed = z.infer<typeof OperatorSpeed>;

/** Reply of `GET /operator/overview`. */
export const OperatorOverview = z
  .object({
    timestamp: Timestamp,
    hosts: z.object({ running: z.int(), lost: z.int(), unknown: z.int() }),
    problems: z.array(FailedCheck).describe('What does not work now'),
    turns: z
      .object({ running: z.int(), queued: z.int(), paused: z.int() })
      .nullable()
      .describe('Of all hosts; null while the store does not answer'),
    sockets: z.int(),
    streams: z.int(),
    timeToFirstToken: z.object(speed).nullable().describe('Of the turns of the last hour'),
    today: z
      .object({ users: z.int(), failed: z.int(), ...usage })
      .nullable()
      .describe('In UTC; null while the store does not answer'),
    failures: z
      .array(TurnFailure)
      .nullable()
      .describe('Of the last 24 hours; null while the store does not answer'),
    limited: HostReport.shape.limited.describe(
      'Users that reached a limit of any host in the last hour',
    ),
  })
  .meta({ id: 'OperatorOverview' });
export type OperatorOverview = z.infer<typeof OperatorOverview>;

/** Query of `GET /operator/turns`. */
export const ListTurns = z.strictObject({
  state: z.enum(['open', 'failed', 'all']).default('all'),
  user: Did.optional().describe('Only the turns of this user'),
  cause: z.string().max(100).optional().describe('Only turns that failed for this cause'),
  limit: wholeNumber({ min: 1, max: 200 }).default(50),
});
export type ListTurns = z.infer<typeof ListTurns>;

export const OperatorTurn = z
  .object({
    runId: z.string(),
    user: did,
    sessionId: z.string(),
    requestId: z.string(),
    traceId: z.string().optional(),
    status: z.string(),
    hostId: z.string().optional(),
    attempt: z.int(),
    createdAt: Timestamp,
    startedAt: Timestamp.optional(),
    updatedAt: Timestamp,
    firstTextMs: z.int().optional().describe('From the start to the first text of the answer'),
    models: z.array(z.string()),
    inputTokens: z.int(),
    outputTokens: z.int(),
    cost: z.number().optional(),
    cause: z.string().optional().describe('Why there is no complete answer, as a code'),
    message: z.string().optional().describe('The message to the user'),
  })
  .meta({ id: 'OperatorTurn' });
export type OperatorTurn = z.infer<typeof OperatorTurn>;

/** Reply of `GET /operator/turns`. */
export const OperatorTurns = z
  .object({ turns: z.array(OperatorTurn) })
  .meta({ id: 'OperatorTurns' });
export type OperatorTurns = z.infer<typeof OperatorTurns>;

/** One bar of the waterfall; times in milliseconds since the message was received. */
export const OperatorSpan = z
  .object({
    id: z.int(),
    parent: z.int().describe('0 is the turn itself'),
    kind: z.enum(['waiting', 'turn', 'model', 'tool', 'hook']),
    name: z.string(),
    start: z.int(),
    ms: z.int(),
    error: z.string().optional().describe('Why it failed, as a code'),
    inputTokens: z.int().optional(),
    outputTokens: z.int().optional(),
    arguments: z
      .record(z.string(), z.unknown())
      .optional()
      .describe('Of a tool call, if its user allows it'),
  })
  .meta({ id: 'OperatorSpan' });
export type OperatorSpan = z.infer<typeof OperatorSpan>;

/** Reply of `GET /operator/turns/:runId`. */
export const OperatorTrace = z
  .object({
    turn: OperatorTurn,
    spans: z.array(OperatorSpan),
    omitted: z.int().describe('Spans that were not kept'),
    argumentsShared: z
      .boolean()
      .describe('Whether the user lets operators see the arguments of tool calls'),
  })
  .meta({ id: 'OperatorTrace' });
export type OperatorTrace = z.infer<typeof OperatorTrace>;

/** Query of lists that cover some days. */
export const OperatorDays = z.strictObject({
  days: wholeNumber({ min: 1, max: 92 }).default(7),
  limit: wholeNumber({ min: 1, max: 500 }).default(100),
});
export type OperatorDays = z.infer<typeof OperatorDays>;

/** Query of `GET /operator/users`. */
export const ListUsers = OperatorDays.extend({
  user: Did.optional().describe('Only this user, also if it has not used the oracle'),
});
export type ListUsers = z.infer<typeof ListUsers>;

export const OperatorUser = z
  .object({
    user: did,
    ...usage,
    failed: z.int(),
    lastAt: Timestamp.optional(),
    sockets: z.int().describe('Open now, at all hosts'),
    limited: z.int().describe('How often it reached a limit in the last hour'),
    blocked: z
      .object({ at: Timestamp, reason: z.string().optional() })
      .optional()
      .describe('Set while the user is blocked'),
  })
  .meta({ id: 'OperatorUser' });
export type OperatorUser = z.infer<typeof OperatorUser>;

/** Reply of `GET /operator/users`. */
export const OperatorUsers = z
  .object({ users: z.array(OperatorUser), total: z.int() })
  .meta({ id: 'OperatorUsers' });
export type OperatorUsers = z.infer<typeof OperatorUsers>;

/** Reply of `GET /operator/failures`. */
export const OperatorFailures = z
  .object({
    turns: z
      .array(TurnFailure)
      .nullable()
      .describe('Turns without a complete answer; null while the store does not answer'),
    models: HostReport.shape.modelFailures.describe('Of all hosts, in the last hour'),
    requests: HostReport.shape.errors.describe('Of all hosts, in the last hour'),
  })
  .meta({ id: 'OperatorFailures' });
export type OperatorFailures = z.infer<typeof OperatorFailures>;

/** Reply of `GET /operator/plugins`. */
export const OperatorPlugins = z
  .object({
    plugins: z.array(
      z.object({
        name: z.string(),
        version: z.string(),
        isLoaded: z.boolean(),
        missing: z.string().optional().describe('Why it is not loaded'),
      }),
    ),
  })
  .meta({ id: 'OperatorPlugins' });
export type OperatorPlugins = z.infer<typeof OperatorPlugins>;

/** Reply of `GET /operator/jobs`. */
export const OperatorJobs = z
  .object({
    jobs: z.array(
      z.object({
        name: z.string(),
        plugin: z.string().optional(),
        waiting: z.int(),
        running: z.int(),
        failed: z.int(),
        nextAt: Timestamp.optional(),
      }),
    ),
  })
  .meta({ id: 'OperatorJobs' });
export type OperatorJobs = z.infer<typeof OperatorJobs>;

export const OperatorAction = z
  .object({
    id: z.string(),
    at: Timestamp,
    operator: z.string().describe('A DID, or `command line`'),
    action: z.enum([
      'block_user',
      'unblock_user',
      'add_operator',
      'remove_operator',
      'view_arguments',
    ]),
    target: z.string(),
    note: z.string().optional(),
  })
  .meta({ id: 'OperatorAction' });
export type OperatorAction = z.infer<typeof OperatorAction>;

/** Query of `GET /operator/audit`. */
export const ListAudit = z.strictObject({
  limit: wholeNumber({ min: 1, max: 500 }).default(100),
  before: z.string().max(100).optional().describe('The id of an entry: only older ones'),
});
export type ListAudit = z.infer<typeof ListAudit>;

/** Reply of `GET /operator/audit`. */
export const AuditLog = z.object({ actions: z.array(OperatorAction) }).meta({ id: 'AuditLog' });
export type AuditLog = z.infer<typeof AuditLog>;

/** Body of `POST /operator/block`. */
export const BlockUser = z
  .strictObject({
    user: Did,
    reason: z.string().trim().max(500).optional().describe('For the audit log'),
  })
  .meta({ id: 'BlockUser' });
export type BlockUser = z.infer<typeof BlockUser>;

/** Body of `POST /operator/unblock`. */
export const UnblockUser = z.strictObject({ user: Did }).meta({ id: 'UnblockUser' });
export type UnblockUser = z.infer<typeof UnblockUser>;

/** Reply of both. */
export const UserBlocked = z
  .object({ user: did, blocked: z.boolean(), changed: z.boolean() })
  .meta({ id: 'UserBlocked' });
export type UserBlocked = z.infer<typeof UserBlocked>;

/** Body of `PUT /me/sharing`, and reply of `GET`: what operators may see besides figures. */
export const Sharing = z
  .strictObject({
    toolArguments: z.boolean().describe('Whether operators may see the arguments of tool calls'),
  })
  .meta({ id: 'Sharing' });
export type Sharing = z.infer<typeof Sharing>;
