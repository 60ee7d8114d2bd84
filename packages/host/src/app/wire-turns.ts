import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import type { Logger } from 'pino';
import type { Models } from '../agent/model/models.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { Config } from '../config/config.js';
import { CallDesk } from '../events/call-desk.js';
import { MemoryEventBus } from '../events/memory-event-bus.js';
import { ReplySender } from '../messages/reply-sender.js';
import { StreamPlaces } from '../messages/stream-places.js';
import type { Metrics } from '../observe/metrics.js';
import type { Store } from '../store/store.js';
import { Gates } from '../turn/gates/gates.js';
import { Hooks } from '../turn/hooks/hooks.js';
import type { ModelBudget } from '../turn/model-budget.js';
import { MissedEvents } from '../turn/runs/missed-events.js';
import { RunReader } from '../turn/runs/run-reader.js';
import { Titles } from '../turn/titles.js';
import { TurnRunner } from '../turn/turn-runner.js';
import { TurnSetup } from '../turn/turn-setup.js';
import { Turns } from '../turn/turns.js';

interface TurnNeeds {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly oracle: OracleIdentity;
  readonly store: Store;
  readonly authority: DelegatedAuthority;
  readonly models: Models;
  readonly budget: ModelBudget;
  readonly plugins: readonly LoadedPlugin[];
}

/** Wires what answers messages: the turns, and those who read them. */
export function wireTurns(needs: TurnNeeds) {
  const { config, logger, metrics, oracle, store, authority, models, budget, plugins } = needs;
  const { sessions, messages } = store;
  const titles = new Titles({ sessions, model: models.get('utility'), logger });
  const settings = config.turns;
  const events = new MemoryEventBus();
  const desk = new CallDesk({ timeoutMs: config.sockets.callTimeoutMs });
  const hooks = new Hooks(logger, settings.hookTimeoutMs);
  const gates = new Gates({ plugins, hooks, budget, logger });
  const setup = new TurnSetup({
    store,
    models,
    oracle,
    authority,
    plugins,
    hooks,
    desk,
    checksEvents: config.sockets.checksEvents,
    logger,
    settings,
  });
  const { maxMs } = settings;
  const runner = new TurnRunner({ runs: store.runs, setup, titles, logger, metrics, maxMs });
  const turns = new Turns({
    store,
    gates,
    runner,
    models,
    events,
    logger,
    settings,
  });
  const reader = new RunReader(turns, store);
  const { streamStallMs } = settings;
  const places = new StreamPlaces(settings.streamsPerUser);
  return {
    turns,
    titles,
    gates,
    reader,
    events,
    desk,
    missed: new MissedEvents(turns, store.runs),
    replies: new ReplySender({ reader, messages, places, streamStallMs, logger }),
  };
}
