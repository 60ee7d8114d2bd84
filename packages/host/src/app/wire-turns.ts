import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { settlesWithin } from '@sibyl/server-kit';
import type { Verifier } from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { AccessKeys } from '../auth/access-keys.js';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { Holders } from '../auth/holders.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { RunGrants } from '../auth/run-grants.js';
import type { UserRules } from '../auth/user-rules.js';
import type { Cluster } from '../bus/cluster.js';
import { ClusterEventBus } from '../bus/cluster-event-bus.js';
import { type EventBus, MemoryEventBus } from '../bus/event-bus.js';
import { PendingClientCalls } from '../bus/pending-client-calls.js';
import { SessionChanges } from '../bus/session-changes.js';
import { SharedCalls } from '../bus/shared-calls.js';
import { SharedPresence, solePresence } from '../bus/socket-presence.js';
import type { Config } from '../config/config.js';
import type { UploadLimits } from '../files/upload-limits.js';
import { ReplySender, StreamSlots } from '../http/reply-sender.js';
import type { Models } from '../models/models.js';
import type { Metrics } from '../observability/metrics.js';
import type { SpanExporter } from '../observability/spans.js';
import type { Store } from '../store/store.js';
import { Approvals } from '../turns/approvals.js';
import { FeedbackService } from '../turns/feedback.js';
import { Gates } from '../turns/gates.js';
import { Hooks } from '../turns/hooks.js';
import { PausedTurns } from '../turns/paused-turns.js';
import { RunFeeds } from '../turns/run-feeds.js';
import { MissedEvents, RunReader } from '../turns/run-reader.js';
import { TurnRunner } from '../turns/run-turn.js';
import { SessionsService } from '../turns/sessions.js';
import { Takeover } from '../turns/takeover.js';
import { Titles } from '../turns/titles.js';
import { TurnAccess } from '../turns/turn-access.js';
import type { ModelBudget } from '../turns/turn-limits.js';
import { type TurnRequest, toGateRequest } from '../turns/turn-request.js';
import { TurnSetup } from '../turns/turn-setup.js';
import { Turns } from '../turns/turns.js';

interface TurnDeps {
  readonly cluster: Cluster;
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly exporter: SpanExporter | undefined;
  readonly oracle: OracleIdentity;
  readonly store: Store;
  readonly authority: DelegatedAuthority;
  readonly allowList: CallerAllowList;
  readonly accessKeys: AccessKeys;
  readonly holders: Holders;
  readonly verifier: Verifier;
  readonly rules: UserRules;
  readonly grants: RunGrants;
  readonly models: Models;
  readonly budget: ModelBudget;
  readonly uploads: Pick<UploadLimits, 'charge'>;
  readonly plugins: readonly LoadedPlugin[];
}

/** Builds the turns and their readers. */
export function wireTurns(needs: TurnDeps) {
  const { config, logger, metrics, oracle, cluster, store, models, budget, plugins } = needs;
  const { authority, rules } = needs;
  const changes = new SessionChanges(cluster.bus);
  const model = models.get('utility');
  const titles = new Titles({ sessions: store.sessions, changes, model, logger });
  const settings = config.turns;
  const { events, presence, pendingCalls } = wireSockets(needs);
  const hooks = new Hooks(logger, settings.hookTimeoutMs, metrics);
  const gates = new Gates({ plugins, hooks, budget, logger });
  const access = new TurnAccess(needs);
  const setup = new TurnSetup({
    store,
    models,
    oracle,
    authority,
    access,
    rules,
    plugins,
    hooks,
    pendingCalls,
    checksEvents: config.sockets.checksEvents,
    logger,
    metrics,
    settings,
  });
  const runner = createRunner(needs, { setup, titles, events });
  const turns = new Turns({
    store,
    cluster,
    gates,
    access,
    holders: needs.holders,
    runner,
    models,
    events,
    changes,
    logger,
    onFlush: (runs, seconds) => metrics.countFlush(runs, seconds),
    settings,
  });
  return {
    turns,
    access,
    changes,
    titles,
    gates,
    events,
    presence,
    pendingCalls,
    sessions: createSessions(needs, { turns, changes, events }),
    ...wireRuns(needs, { turns, events, changes, access, gates }),
  };
}

function createRunner(
  { config, logger, metrics, oracle, cluster, store, models, grants, exporter }: TurnDeps,
  parts: { readonly setup: TurnSetup; readonly titles: Titles; readonly events: EventBus },
): TurnRunner {
  const { maxMs, maxPaused, storeWaitMs } = config.turns;
  return new TurnRunner({
    ...parts,
    grants,
    limits: { ms: maxMs, paused: maxPaused, storeWaitMs },
    logger,
    metrics,
    usage: store.usage,
    now: store.now,
    exporter,
    hostId: cluster.hostId,
    agentName: oracle.name,
    mainModel: models.get('main').id,
  });
}

function createSessions(
  { config, oracle, holders, uploads, store: { sessions, messages, disk } }: TurnDeps,
  services: { readonly turns: Turns; readonly changes: SessionChanges; readonly events: EventBus },
): SessionsService {
  const maxPerUser = config.sessionsPerUser;
  const charge = async (owner: string, bytes: number) =>
    uploads.charge(await holders.find(owner), bytes);
  const own = { sessions, messages, disk, oracle, maxPerUser, charge };
  return new SessionsService({ ...own, ...services });
}

interface RunDeps {
  readonly turns: Turns;
  readonly events: EventBus;
  readonly changes: SessionChanges;
  readonly access: TurnAccess;
  readonly gates: Gates;
}

const SETTLE_MS = 2_000;

/** Builds what reads runs, continues paused ones and takes over those of other hosts. */
function wireRuns(
  { config, logger, metrics, oracle, verifier, cluster, store, models, grants }: TurnDeps,
  { turns, events, changes, access, gates }: RunDeps,
) {
  const { runs, messages, answerDetails: details } = store;
  const { streamStallMs, streamsPerUser, resumesTurns } = config.turns;
  const feeds = new RunFeeds(cluster.bus);
  const reader = new RunReader(turns, store, feeds);
  const paused = new PausedTurns(store, turns);
  const takeover = new Takeover({
    runs,
    turns,
    paused,
    cluster,
    events,
    logger,
    resumes: resumesTurns,
    onTakeover: (outcome) => metrics.count('sibyl_takeovers_total', { outcome }),
    onClosed: (run) => {
      feeds.announce(run.id);
      cluster.bus.send('others', 'run-changed', { owner: run.owner, runId: run.id });
      changes.publish(run, 'turn_ended');
    },
  });
  const slots = new StreamSlots(streamsPerUser);
  const assertAdmitted = async (request: TurnRequest) => {
    const account = await gates.admit(toGateRequest(request, models));
    // The turn needs what this has set aside.
    await settlesWithin(SETTLE_MS, account.settle());
  };
  return {
    reader,
    paused,
    approvals: new Approvals({
      ...{ store, turns, grants, assertAdmitted, verifier, oracle, metrics, logger },
    }),
    takeover,
    slots,
    missed: new MissedEvents(turns, runs),
    feedback: new FeedbackService({ store, events }),
    replies: new ReplySender({ reader, access, messages, details, slots, streamStallMs, logger }),
  };
}

/** Builds what connects turns and sockets, also those of other hosts if there may be some. */
function wireSockets({ config, store, cluster, logger }: TurnDeps) {
  const timeoutMs = config.sockets.callTimeoutMs;
  const { sockets: directory } = store;
  if (!directory)
    return {
      events: new MemoryEventBus(),
      presence: solePresence,
      pendingCalls: new PendingClientCalls({ timeoutMs }),
    };
  const { bus, liveness } = cluster;
  const shared = new SharedCalls({ directory, bus, liveness, logger });
  const pendingCalls = new PendingClientCalls({ timeoutMs, shared });
  const onRemoteCall = pendingCalls.addRemote.bind(pendingCalls);
  const isCallOpen = pendingCalls.has.bind(pendingCalls);
  return {
    events: new ClusterEventBus({ directory, bus, liveness, onRemoteCall, isCallOpen, logger }),
    presence: new SharedPresence({ directory, bus, liveness, logger }),
    pendingCalls,
  };
}
