import {
  definePlugin,
  defineRoute,
  defineTool,
  type Route,
  type SetupContext,
} from '@sibyl/plugin-kit';
import { RESULT_CHATS } from '@sibyl/plugin-kit/chat';
import {
  CreateSchedule,
  ListScheduleRuns,
  Schedule,
  ScheduleDeleted,
  ScheduleList,
  ScheduleRunList,
  ScheduleTrigger,
  ScheduleTriggered,
  ScheduleWithSecret,
  UpdateSchedule,
} from '@sibyl/protocol';
import { z } from 'zod';
import { ScheduleRuns } from './run-store.js';
import { SchedulePermits } from './schedule-permits.js';
import { ScheduleStore, tables } from './schedule-store.js';
import { Scheduler } from './scheduler.js';
import { Schedules, SchedulesConfig } from './schedules.js';
import { type ResultChats, ResultDelivery } from './webhooks.js';

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
  tables,
  // They post results.
  softDependsOn: ['slack', 'matrix'],
  setup: (context) => createServices(context),
  close: async ({ scheduler, delivery }) => {
    await scheduler.close();
    await delivery.close();
  },
  getJobs: ({ runs }) => runs.summarize(),
  getTools: ({ services }) => listScheduleTools(services.service),
  routes: ({ services }) => listRoutes(services.service),
});

function createServices(context: SetupContext<SchedulesConfig>) {
  const { database, config, logger, oracle, publicUrl, fetch, ucan, delegatedTurns, findHolder } =
    context;
  const chats: ResultChats = {
    find: (address) =>
      context.shared.get(address.startsWith('slack_') ? RESULT_CHATS.slack : RESULT_CHATS.matrix),
  };
  const store = new ScheduleStore(database);
  const runs = new ScheduleRuns(database);
  const permits = new SchedulePermits({ turns: delegatedTurns, oracleDid: oracle.did });
  const common = { runs, turns: delegatedTurns, permits, logger, chats };
  const delivery = new ResultDelivery({
    ...common,
    schedules: store,
    findHolder,
    fetch,
    ucan,
    oracle,
  });
  const scheduler = new Scheduler({ ...common, schedules: store, delivery });
  const service = new Schedules({ ...common, store, scheduler, publicUrl, config });
  return { service, scheduler, delivery, runs };
}

/** The routes of the plugin. */
const listRoutes = (service: Schedules): readonly Route[] => [
  ...listScheduleRoutes(service),
  ...listRunRoutes(service),
];

const listScheduleRoutes = (service: Schedules): readonly Route[] => [
  defineRoute({
    method: 'GET',
    path: '/schedules',
    summary: "The caller's schedules, newest first",
    reply: ScheduleList,
    handler: async ({ caller: { did } }) => ({ schedules: await service.list(did) }),
  }),
  defineRoute({
    method: 'POST',
    path: '/schedules',
    summary: 'Create a schedule',
    needsOwnKey: true,
    status: 201,
    body: CreateSchedule,
    reply: ScheduleWithSecret,
    errors: [
      'invalid_delegation',
      'foreign_delegation',
      'too_many_schedules',
      'too_many_sessions',
      'disk_full',
    ],
    handler: ({ caller: { did }, body }) => service.create(did, body),
  }),
  defineRoute({
    method: 'GET',
    path: '/schedules/:id',
    summary: 'A schedule',
    reply: Schedule,
    errors: ['schedule_not_found'],
    handler: ({ caller: { did: owner }, params: { id } }) => service.get({ owner, id }),
  }),
  defineRoute({
    method: 'PATCH',
    path: '/schedules/:id',
    summary:
      'Change, pause or resume a schedule, or give it another delegation; with a login by delegation only pause it',
    needsOwnKey: ({ status, ...changes }) => status !== 'paused' || Object.keys(changes).length > 0,
    body: UpdateSchedule,
    reply: Schedule,
    errors: ['schedule_not_found', 'invalid_delegation', 'foreign_delegation', 'delegation_ended'],
    handler: ({ caller: { did: owner }, params: { id }, body }) =>
      service.update({ owner, id }, body),
  }),
  defineRoute({
    method: 'DELETE',
    path: '/schedules/:id',
    summary: 'Delete a schedule; its session stays',
    needsOwnKey: true,
    reply: ScheduleDeleted,
    errors: ['schedule_not_found'],
    handler: async ({ caller: { did: owner }, params: { id } }) => {
      await service.remove({ owner, id });
      return { message: 'The schedule is deleted' };
    },
  }),
];

const listRunRoutes = (service: Schedules): readonly Route[] => [
  defineRoute({
    method: 'POST',
    path: '/schedules/:id/run',
    summary: 'Run a schedule now',
    startsWork: true,
    needsOwnKey: true,
    reply: ScheduleTriggered,
    errors: ['schedule_not_found', 'delegation_ended'],
    handler: ({ caller: { did: owner }, params: { id } }) => service.runNow({ owner, id }),
  }),
  defineRoute({
    method: 'GET',
    path: '/schedules/:id/runs',
    summary: 'The runs of a schedule, newest first',
    query: ListScheduleRuns,
    reply: ScheduleRunList,
    errors: ['schedule_not_found'],
    handler: async ({ caller: { did: owner }, params: { id }, query: { limit } }) => ({
      runs: await service.listRuns({ owner, id, limit }),
    }),
  }),
  defineRoute({
    method: 'POST',
    path: '/schedules/:id/secret',
    summary: 'Replace the secret of the webhook of a schedule',
    needsOwnKey: true,
    reply: ScheduleWithSecret,
    errors: ['schedule_not_found', 'bad_request'],
    handler: ({ caller: { did: owner }, params: { id } }) => service.replaceSecret({ owner, id }),
  }),
  defineRoute({
    method: 'POST',
    path: '/schedules/hooks/:owner/:id',
    auth: 'public',
    summary: 'Run a schedule because something happened elsewhere',
    startsWork: true,
    body: z.unknown().optional().describe('Any JSON; the model receives it as data of a stranger'),
    reply: ScheduleTriggered,
    errors: ['missing_authentication', 'forbidden', 'body_too_large'],
    headers: { authorization: 'Bearer and the secret of the webhook' },
    handler: ({ params, headers, rawBody }) =>
      service.trigger(params, {
        authorization: headers.authorization,
        body: rawBody.toString('utf8'),
      }),
  }),
];

const Task = z
  .strictObject({
    name: z.string().trim().min(1).max(100).describe('A short title'),
    message: z
      .string()
      .trim()
      .min(1)
      .max(10_000)
      .describe('What you will be asked each time; complete without this conversation'),
    cron: z
      .string()
      .max(100)
      .optional()
      .describe('For repeated tasks: minute, hour, day of month, month, day of week'),
    at: z.iso
      .datetime({ offset: true })
      .optional()
      .describe('For a single time: ISO 8601 with the offset of the user'),
    timezone: z.string().max(64).optional().describe("Of `cron`; default: the user's time zone"),
  })
  .refine(({ cron, at }) => (cron === undefined) !== (at === undefined), {
    error: 'give either cron or at',
  });

/** The schedule that a task is. */
function toWanted(
  { name, message, cron = '', at, timezone }: z.output<typeof Task>,
  user: { readonly timezone: string },
): Omit<CreateSchedule, 'delegation'> {
  const trigger: ScheduleTrigger =
    at !== undefined
      ? { type: 'once', at }
      : { type: 'cron', cron, timezone: timezone ?? user.timezone };
  return { name, message, trigger, catchUp: 'skip' };
}

/** The tools with which the agent schedules tasks. */
const listScheduleTools = (service: Schedules) => [
  defineTool({
    name: 'schedule_task',
    description:
      'Schedules a task that you will do for the user later: once at a time, or repeatedly. The user approves each call. Compute times from the current time in the conversation.',
    inputSchema: Task,
    // A schedule acts as the user while the user is away.
    needsApproval: true,
    // With the approval, the user signs the schedule too.
    delegates: (task, { user }) => service.toDelegation(toWanted(task, user)),
    run: async (task, { user, delegation }) => {
      const wanted = toWanted(task, user);
      const created = await service.createApproved(user.did, wanted, delegation);
      const { id, status, nextDueAt, resource } = created;
      if (status === 'active') return { id, status, nextDueAt };
      const todo = `The task does not run yet. Ask the user to authorize it: sign a delegation of oracle/run at ${resource}, for example with: sibyl schedules authorize ${id}`;
      return { id, status, todo };
    },
  }),
  defineTool({
    name: 'list_schedules',
    description: 'Lists what is scheduled for the user, and when it runs next.',
    inputSchema: z.strictObject({}),
    run: async (_, { user }) => ({
      schedules: (await service.list(user.did)).map(
        ({ id, name, message, trigger, status, reason, nextDueAt }) => ({
          id,
          name,
          message,
          trigger,
          status,
          ...(reason !== undefined && { reason }),
          ...(nextDueAt !== undefined && { nextDueAt }),
        }),
      ),
    }),
  }),
];
