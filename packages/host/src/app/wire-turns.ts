import type { Tool } from '@sibyl/plugin-kit';
import type { Logger } from 'pino';
import { createModels } from '../agent/model/models.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { Config } from '../config/config.js';
import { ReplySender } from '../messages/reply-sender.js';
import type { Metrics } from '../observe/metrics.js';
import type { Store } from '../store/store.js';
import { RunReader } from '../turn/run-reader.js';
import { Titles } from '../turn/titles.js';
import { TurnRunner } from '../turn/turn-runner.js';
import { Turns } from '../turn/turns.js';

interface TurnNeeds {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly oracle: OracleIdentity;
  readonly store: Store;
  readonly authority: DelegatedAuthority;
  readonly tools: readonly Tool[];
}

/** Wires what answers messages: the models, the turns, and those who read them. */
export function wireTurns(needs: TurnNeeds) {
  const { config, logger, metrics, oracle, store, authority, tools } = needs;
  const models = createModels(config.models);
  const { sessions, messages } = store;
  const titles = new Titles({ sessions, model: models.get('utility'), logger });
  const settings = config.turns;
  const runner = new TurnRunner({
    store,
    models,
    oracle,
    authority,
    tools,
    titles,
    logger,
    metrics,
    settings,
  });
  const turns = new Turns({ store, runner, models, logger, maxPerUser: settings.maxPerUser });
  const reader = new RunReader(turns, store);
  const { streamStallMs } = settings;
  return { models, turns, titles, replies: new ReplySender({ reader, messages, streamStallMs }) };
}
