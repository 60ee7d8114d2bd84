import { oncePerSecond } from '../store/disk-space.js';
import type { Services } from './services.js';

/** Adds the metrics that are read from other parts of the host. */
export function addGauges({
  metrics,
  cluster,
  store,
  turns,
  replies,
  readiness,
  connections,
  plugins,
}: Services): void {
  metrics.addBus(() => cluster.bus.figures);
  metrics.nameTools(
    plugins.flatMap(({ tools, subAgents }) => [
      ...tools.map(({ name }) => name),
      ...subAgents.map(({ name }) => `call_${name}_agent`),
    ]),
  );
  const add = (name: string, help: string, read: () => number) =>
    metrics.addGauge({ name, help }, read);
  add('sibyl_hosts', 'Running hosts that this host sees', () => cluster.liveness.hostCount);
  add('sibyl_sockets', 'Open sockets', () => connections.openSockets);
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
