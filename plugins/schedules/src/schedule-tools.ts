import { defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { Schedules } from './schedules.js';

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

/** The tools with which the agent schedules tasks. */
export const listScheduleTools = (service: Schedules) => [
  defineTool({
    name: 'schedule_task',
    description:
      'Schedules a task that you will do for the user later: once at a time, or repeatedly. The user approves each call. Compute times from the current time in the conversation.',
    inputSchema: Task,
    // A schedule acts as the user while the user is away.
    needsApproval: true,
    run: async ({ name, message, cron, at, timezone }, { user }) => {
      const trigger =
        at !== undefined
          ? ({ type: 'once', at } as const)
          : ({ type: 'cron', cron: cron ?? '', timezone: timezone ?? user.timezone } as const);
      const created = await service.create(user.did, { name, message, trigger, catchUp: 'skip' });
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
