import type { HostBus, HostTopic, HostTopics } from '../bus/host-bus.js';
import { startSpan, withSpan } from '../observability/spans.js';
import type { Database, Unit } from '../store/database.js';

/** The same database; each unit of work is a span. Only used if spans are exported. */
export function traceDatabase(database: Database): Database {
  const engine = database.engine === 'postgres' ? 'postgresql' : database.engine;
  const trace = <T>(name: string, work: () => Promise<T>) =>
    withSpan({ kind: 'store', name, facts: { statement: name, engine } }, work);
  return {
    engine: database.engine,
    now: database.now,
    tables: database.tables,
    write: (unit, options) => trace('write', () => database.write(unit, options)),
    writeFor: (owner, unit, options) =>
      trace('write', () => database.writeFor(owner, unit, options)),
    estimateDelay: () => database.estimateDelay(),
    isStoring: (ms) => database.isStoring(ms),
    read: <T>(unit: Unit<T>) => trace('read', () => database.read(unit)),
    migrate: (plan) => database.migrate(plan),
    reclaim: (log) => database.reclaim(log),
    close: () => database.close(),
  };
}

/** The same bus; each message that is sent for a request or a turn is a span. */
export function traceBus(bus: HostBus): HostBus {
  return {
    hostId: bus.hostId,
    isShared: bus.isShared,
    send: <Topic extends HostTopic>(to: string, topic: Topic, payload: HostTopics[Topic]) => {
      const span = startSpan({ kind: 'bus', name: topic });
      try {
        return bus.send(to, topic, payload);
      } finally {
        span?.end();
      }
    },
    room: () => bus.room(),
    on: (topic, listener) => bus.on(topic, listener),
    onMissed: (listener) => bus.onMissed(listener),
    get figures() {
      return bus.figures;
    },
  };
}
