import { randomUUID } from 'node:crypto';
import {
  buildScheduleClaims,
  type CreateSchedule,
  type Schedule,
  type ScheduleRun,
  type ScheduleTerms,
  type ScheduleWithSecret,
} from '@sibyl/protocol';
import { expect } from 'vitest';
import type { TestUser } from './user.js';

export const toResource = (user: TestUser, id: string): string =>
  `ixo:oracle:${user.host.did}:schedule/${id}`;

const standard = {
  name: 'Test',
  message: 'Say something',
  trigger: { type: 'cron', cron: '0 8 * * *', timezone: 'Europe/Berlin' },
} as const;

interface Wanted extends Partial<ScheduleTerms> {
  readonly id: string;
  readonly ttlSeconds?: number | null;
}

/** A delegation for one schedule and what it does; what is absent is what `createSchedule` creates. */
export async function signSchedule(
  user: TestUser,
  { id, ttlSeconds = 3600, ...terms }: Wanted,
): Promise<string> {
  const nb = { ...(await buildScheduleClaims({ ...standard, ...terms })) };
  const capabilities = [{ can: 'oracle/run', with: toResource(user, id), nb }];
  return user.delegate({ capabilities, ttlSeconds });
}

/** Creates a schedule with its own delegation. */
export async function createSchedule(
  user: TestUser,
  wanted: Partial<CreateSchedule> = {},
): Promise<ScheduleWithSecret> {
  const id = wanted.id ?? randomUUID();
  const delegation = await signSchedule(user, { ...wanted, id });
  const schedule = { ...standard, id, delegation, ...wanted };
  const { status, body } = await user.request('POST', '/schedules', { body: schedule });
  expect(body).toMatchObject({ id });
  expect(status).toBe(201);
  return body;
}

export const readSchedule = async (user: TestUser, id: string): Promise<Schedule> =>
  (await user.request('GET', `/schedules/${id}`)).body;

export const readRuns = async (user: TestUser, id: string): Promise<readonly ScheduleRun[]> =>
  (await user.request('GET', `/schedules/${id}/runs?limit=100`)).body.runs;
