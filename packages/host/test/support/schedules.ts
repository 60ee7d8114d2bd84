import { randomUUID } from 'node:crypto';
import type { CreateSchedule, Schedule, ScheduleRun, ScheduleWithSecret } from '@sibyl/protocol';
import { expect } from 'vitest';
import type { TestUser } from './user.js';

export const toResource = (user: TestUser, id: string): string =>
  `ixo:oracle:${user.host.did}:schedule/${id}`;

/** A delegation for one schedule, or for all. */
export const delegateRuns = (user: TestUser, id = '*', ttlSeconds: number | null = 3600): string =>
  user.delegate({ capabilities: [{ can: 'oracle/run', with: toResource(user, id) }], ttlSeconds });

/** Creates a schedule with its own delegation. */
export async function createSchedule(
  user: TestUser,
  wanted: Partial<CreateSchedule> = {},
): Promise<ScheduleWithSecret> {
  const id = wanted.id ?? randomUUID();
  const { status, body } = await user.request('POST', '/schedules', {
    body: {
      id,
      name: 'Test',
      message: 'Say something',
      trigger: { type: 'cron', cron: '0 8 * * *', timezone: 'Europe/Berlin' },
      delegation: delegateRuns(user, id),
      ...wanted,
    },
  });
  expect(body).toMatchObject({ id });
  expect(status).toBe(201);
  return body;
}

export const readSchedule = async (user: TestUser, id: string): Promise<Schedule> =>
  (await user.request('GET', `/schedules/${id}`)).body;

export const readRuns = async (user: TestUser, id: string): Promise<readonly ScheduleRun[]> =>
  (await user.request('GET', `/schedules/${id}/runs?limit=100`)).body.runs;
