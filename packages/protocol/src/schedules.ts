import { z } from 'zod';
import {
  Cid,
  HttpUrl,
  Id,
  Timestamp,
  TimeZone,
  UcanToken,
  UnixSeconds,
  wholeNumber,
} from './identifiers.js';

/** The id of a schedule; clients may choose it, so that they can sign its delegation before they create it. */
const ScheduleId = z
  .string()
  .regex(/^[A-Za-z0-9_-]{8,64}$/, { error: 'must be 8 to 64 of A-Z a-z 0-9 _ -' });

/** When a schedule runs. */
export const ScheduleTrigger = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('cron'),
      cron: z
        .string()
        .min(1)
        .max(100)
        .describe(
          'Minute, hour, day of month, month, day of week; a sixth field in front is seconds',
        ),
      timezone: TimeZone.describe('IANA name; the fields of `cron` are local times there'),
    }),
    z.strictObject({
      type: z.literal('once'),
      at: z.iso.datetime({ offset: true }).describe('ISO 8601 with an offset'),
    }),
    z.strictObject({ type: z.literal('webhook') }),
  ])
  .meta({ id: 'ScheduleTrigger' });
export type ScheduleTrigger = z.infer<typeof ScheduleTrigger>;

const ScheduleName = z.string().max(100).regex(/\S/, { error: 'must not be blank' }).trim();
const ScheduleMessage = z
  .string()
  .max(10_000)
  .regex(/\S/, { error: 'must not be blank' })
  .describe('What the oracle is asked each time');
const CatchUp = z
  .enum(['skip', 'once'])
  .describe('After downtime: skip missed times, or make up for all of them with one run');
const ResultUrl = HttpUrl.describe('Where the result of each run is posted, signed by the oracle');
const ResultTo = z
  .string()
  .regex(/^(slack|matrix)_[\w-]{20,64}$/, {
    error: 'must be an address that the oracle has given out in Slack or Matrix',
  })
  .describe(
    'The address of a chat in which the result of each run is posted; instead of `resultUrl`',
  );
const Delegation = UcanToken.describe(
  'A delegation of `oracle/run` at the `resource` of the schedule, signed by the user for this oracle, with exactly the caveats `messageHash`, `triggerHash` and `targetHash`: SHA-256 in hex of the canonical JSON (RFC 8785) of `message`, of `trigger`, and of `{resultUrl, resultTo}` with null for what is absent',
);

/** Body of `POST /schedules`. */
export const CreateSchedule = z
  .strictObject({
    id: ScheduleId.optional(),
    name: ScheduleName,
    message: ScheduleMessage,
    trigger: ScheduleTrigger,
    catchUp: CatchUp.default('skip'),
    resultUrl: ResultUrl.optional(),
    resultTo: ResultTo.optional(),
    delegation: Delegation.optional(),
  })
  .meta({ id: 'CreateSchedule' });
export type CreateSchedule = z.infer<typeof CreateSchedule>;

/** Body of `PATCH /schedules/:id`; what is absent does not change. A schedule that does something else then needs another delegation. */
export const UpdateSchedule = z
  .strictObject({
    name: ScheduleName.optional(),
    message: ScheduleMessage.optional(),
    trigger: ScheduleTrigger.optional(),
    catchUp: CatchUp.optional(),
    resultUrl: ResultUrl.nullable().optional(),
    resultTo: ResultTo.nullable().optional(),
    delegation: Delegation.optional(),
    status: z.enum(['active', 'paused']).optional().describe('Pauses or resumes the schedule'),
  })
  .meta({ id: 'UpdateSchedule' });
export type UpdateSchedule = z.infer<typeof UpdateSchedule>;

/** A schedule of the caller. */
export const Schedule = z
  .object({
    id: Id,
    name: z.string(),
    message: z.string(),
    trigger: ScheduleTrigger,
    catchUp: CatchUp,
    status: z
      .enum(['active', 'paused', 'unauthorized', 'stopped', 'finished'])
      .describe(
        '`unauthorized`: waits for a delegation for what it does now, see `reason`; `stopped`: ended by the host, see `reason`; `finished`: its only time has passed',
      ),
    reason: z.string().optional(),
    sessionId: Id.describe('The session whose turns are the runs'),
    nextDueAt: Timestamp.optional(),
    failures: z.int().min(0).describe('Runs in a row that failed'),
    resource: z.string().describe('What its delegation must be for'),
    delegation: z.object({ cid: Cid, expiration: UnixSeconds.optional() }).optional(),
    resultUrl: z.string().optional(),
    resultTo: z.string().optional(),
    webhookUrl: z.string().optional(),
    createdAt: Timestamp,
    updatedAt: Timestamp,
  })
  .meta({ id: 'Schedule' });
export type Schedule = z.infer<typeof Schedule>;

/** Reply of `POST /schedules` and `POST /schedules/:id/secret`. */
export const ScheduleWithSecret = Schedule.extend({
  webhookSecret: z.string().optional().describe('Shown only once'),
}).meta({ id: 'ScheduleWithSecret' });
export type ScheduleWithSecret = z.infer<typeof ScheduleWithSecret>;

/** Reply of `GET /schedules`, newest first. */
export const ScheduleList = z.object({ schedules: z.array(Schedule) }).meta({ id: 'ScheduleList' });
export type ScheduleList = z.infer<typeof ScheduleList>;

/** Reply of `DELETE /schedules/:id`. */
export const ScheduleDeleted = z.object({ message: z.string() }).meta({ id: 'ScheduleDeleted' });
export type ScheduleDeleted = z.infer<typeof ScheduleDeleted>;

/** One run of a schedule. */
export const ScheduleRun = z
  .object({
    dueAt: Timestamp,
    cause: z.enum(['time', 'catch-up', 'manual', 'webhook']),
    status: z
      .enum([
        'starting',
        'running',
        'paused',
        'finished',
        'failed',
        'aborted',
        'interrupted',
        'skipped',
      ])
      .describe('`paused`: waits for an answer of the user'),
    runId: Id.optional(),
    error: z.string().optional(),
    endedAt: Timestamp.optional(),
    delivery: z
      .object({
        status: z.enum(['pending', 'delivered', 'failed']),
        attempts: z.int().min(0),
        error: z.string().optional(),
      })
      .optional()
      .describe('Of the result to `resultUrl` or `resultTo`'),
  })
  .meta({ id: 'ScheduleRun' });
export type ScheduleRun = z.infer<typeof ScheduleRun>;

/** Query of `GET /schedules/:id/runs`. */
export const ListScheduleRuns = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(20),
});
export type ListScheduleRuns = z.infer<typeof ListScheduleRuns>;

/** Reply of `GET /schedules/:id/runs`, newest first. */
export const ScheduleRunList = z
  .object({ runs: z.array(ScheduleRun) })
  .meta({ id: 'ScheduleRunList' });
export type ScheduleRunList = z.infer<typeof ScheduleRunList>;

/** Reply of `POST /schedules/:id/run` and of a webhook. */
export const ScheduleTriggered = z.object({ dueAt: Timestamp }).meta({ id: 'ScheduleTriggered' });
export type ScheduleTriggered = z.infer<typeof ScheduleTriggered>;
