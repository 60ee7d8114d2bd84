import type { HostReport } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import { Operators } from '../auth/operators.js';
import type { Cluster } from '../bus/cluster.js';
import type { SocketUser } from '../bus/socket-presence.js';
import type { Config } from '../config/config.js';
import type { HostFacts } from '../http/discovery.controller.js';
import type { ReadinessChecks } from '../http/health.controller.js';
import type { ReplySender } from '../http/reply-sender.js';
import type { Metrics } from '../observability/metrics.js';
import { type HostEvents, HostReports } from '../operators/host-reports.js';
import { OperatorService } from '../operators/operator-service.js';
import type { LoadedPlugins } from '../plugins/load-plugins.js';
import type { PluginStatus } from '../plugins/select-plugins.js';
import { oncePerSecond } from '../store/disk-space.js';
import type { Store } from '../store/store.js';
import type { Turns } from '../turns/turns.js';

/** Users with open sockets that operators see, those with most first. */
const LISTED_SOCKET_USERS = 100;

/** Replaced once the socket server is built. */
interface SocketCounters {
  sockets: () => number;
  socketUsers: () => readonly SocketUser[];
}

/** What serves the routes of operators. */
export interface OperatorDeps {
  readonly operators: Operators;
  readonly operatorService: OperatorService;
  readonly hostReports: HostReports;
  /** Figures of parts that are built after these. */
  readonly counters: SocketCounters;
  /** Called with every error that a caller receives. */
  readonly onError: (code: string, status: number, did: string | undefined) => void;
}

interface OperatorNeeds {
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly cluster: Cluster;
  readonly store: Store;
  readonly allowList: CallerAllowList;
  readonly readiness: ReadinessChecks;
  readonly turns: Turns;
  readonly replies: ReplySender;
  readonly facts: HostFacts;
  readonly plugins: LoadedPlugins;
  readonly hostEvents: HostEvents;
}

export function wireOperators(
  { config, status }: { readonly config: Config; readonly status: readonly PluginStatus[] },
  needs: OperatorNeeds,
): OperatorDeps {
  const { logger, metrics, cluster, store, allowList, hostEvents } = needs;
  const counters: SocketCounters = { sockets: () => 0, socketUsers: () => [] };
  const hostReports = new HostReports({
    cluster,
    // On SQLite there is no other host.
    hosts: store.sockets && store.hosts,
    now: store.now,
    describe: createReport(needs, counters),
    logger,
  });
  const listed = config.auth.operators;
  const { plugins } = needs.plugins;
  return {
    operators: new Operators({ listed, stored: store.operators, allowList, logger }),
    operatorService: new OperatorService({
      store,
      hosts: hostReports,
      listSocketUsers: async () =>
        (await store.sockets?.listUsers(LISTED_SOCKET_USERS)) ?? counters.socketUsers(),
      allowList,
      operators: listed,
      status,
      plugins,
      logger,
    }),
    hostReports,
    counters,
    onError: (code, httpStatus, did) => {
      metrics.count('sibyl_errors_total', { code });
      hostEvents.recordError(code, httpStatus, did);
    },
  };
}

function createReport(
  { cluster, readiness, turns, replies, facts, hostEvents, store }: OperatorNeeds,
  counters: OperatorDeps['counters'],
): () => Promise<HostReport> {
  const startedAt = new Date().toISOString();
  const describeOutage = (): Pick<HostReport, 'storeOutage'> => {
    const outage = store.outage?.current;
    return outage ? { storeOutage: { ...outage, since: outage.since.toISOString() } } : {};
  };
  return async () => ({
    version: facts.version,
    startedAt,
    readiness: await readiness.check(),
    ...describeOutage(),
    turns: turns.count(),
    sockets: counters.sockets(),
    streams: replies.streamCount,
    busLagMs: cluster.bus.figures.lagMs,
    memoryBytes: process.memoryUsage.rss(),
    ...hostEvents.describe(),
  });
}

/** Adds the metrics that are read from other parts of the host. */
export function addGauges(deps: OperatorNeeds & Pick<OperatorDeps, 'counters'>): void {
  const { metrics, cluster, store, turns, replies, readiness, counters, plugins } = deps;
  metrics.addBus(() => cluster.bus.figures);
  metrics.nameTools(
    plugins.plugins.flatMap(({ tools, subAgents }) => [
      ...tools.map(({ name }) => name),
      ...subAgents.map(({ name }) => `call_${name}_agent`),
    ]),
  );
  const add = (name: string, help: string, read: () => number) =>
    metrics.addGauge({ name, help }, read);
  add('sibyl_hosts', 'Running hosts that this host sees', () => cluster.liveness.hostCount);
  add('sibyl_sockets', 'Open sockets', () => counters.sockets());
  add('sibyl_streams', 'Requests that wait for or stream an answer', () => replies.streamCount);
  metrics.addGauge(
    { name: 'sibyl_turns', help: 'Turns of this host, by state', label: 'state' },
    () => ({ ...turns.count() }),
  );
  const countOpen = oncePerSecond(() => store.turnReports.countOpen());
  metrics.addGauge(
    { name: 'sibyl_paused_turns', help: 'Turns of all hosts that wait for an answer' },
    async () => (await countOpen()).paused,
  );
  metrics.addCounter(
    { name: 'sibyl_store_failures_total', help: 'Failures of the store, by kind', label: 'kind' },
    () => store.outage?.counts ?? {},
  );
  if (store.disk) {
    const { readFree } = store.disk;
    metrics.addGauge(
      { name: 'sibyl_disk_free_bytes', help: 'Free space of the disk of the database' },
      async () => (await readFree()) ?? {},
    );
  }
  metrics.addGauge(
    { name: 'sibyl_ready', help: 'Whether a part of the host works, by check', label: 'check' },
    async () => {
      const { checks } = await readiness.check();
      const values = Object.entries(checks).map(([name, { status }]) => [
        name,
        status === 'failing' ? 0 : 1,
      ]);
      return Object.fromEntries(values);
    },
  );
}
