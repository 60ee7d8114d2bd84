import { definePlugin, type SetupContext } from '@sibyl/plugin-kit';
import { listRoutes } from './routes.js';
import { ScheduleRuns } from './run-store.js';
import { migrations, ScheduleStore } from './schedule-store.js';
import { Scheduler } from './scheduler.js';
import { Schedules, SchedulesConfig } from './schedules.js';
import { ResultDelivery } from './webhooks.js';

/** Runs turns for users at set times, or when a webhook arrives. */
export const schedules = definePlugin({
  name: 'schedules',
  version: '0.1.0',
  manifest: {
    title: 'Schedules',
    summary: 'Does something for the user later or regularly, or when a webhook arrives.',
    whenToUse: [
      'the user asks to be reminded, or wants something done at a time, every day, every week',
      'the user asks what is scheduled',
    ],
    whenNotToUse: ['the user wants it now'],
    examples: ['Every weekday at 8, summarize the news.', 'Remind me in two hours.'],
    category: 'core',
    visibility: 'on-demand',
  },
  configSchema: SchedulesConfig,
  migrations,
  setup: (context) => createServices(context),
  close: async ({ scheduler, delivery }) => {
    await scheduler.close();
    await delivery.close();
  },
  routes: ({ services }) => listRoutes(services),
});

function createServices(context: SetupContext<SchedulesConfig>) {
  const { database, config, logger, oracle, publicUrl, fetch, ucan, delegatedTurns } = context;
  const store = new ScheduleStore(database);
  const runs = new ScheduleRuns(database);
  const toResource = (id: string) => `ixo:oracle:${oracle.did}:schedule/${id}`;
  const common = { runs, turns: delegatedTurns, toResource, logger };
  const delivery = new ResultDelivery({ ...common, schedules: store, fetch, ucan, oracle });
  const scheduler = new Scheduler({ ...common, schedules: store, delivery });
  const service = new Schedules({ ...common, store, scheduler, publicUrl, config });
  return { service, scheduler, delivery };
}
