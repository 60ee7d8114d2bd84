import type {
  CreateSchedule,
  Schedule,
  ScheduleList,
  ScheduleRun,
  ScheduleRunList,
  ScheduleTriggered,
  ScheduleWithSecret,
  UpdateSchedule,
} from '@sibyl/protocol';
import { buildScheduleClaims, type ScheduleTerms } from '@sibyl/protocol/decisions';
import { delegateRuns } from './delegations.js';
import type { HttpClient, RequestOptions } from './http/http-client.js';
import type { OracleSigner } from './signers/signer.js';

/** A schedule to create; the client signs its delegation. */
export interface NewSchedule
  extends Pick<CreateSchedule, 'name' | 'message' | 'trigger' | 'resultUrl' | 'resultTo'>,
    Partial<Pick<CreateSchedule, 'id' | 'catchUp'>> {
  /** Unix seconds; when the delegation expires and the schedule stops. Defaults to 90 days from now. */
  readonly expiration?: number;
}

const PATH = '/schedules';
/** What the delegation of a schedule signs. */
const SIGNED = ['message', 'trigger', 'resultUrl', 'resultTo'] as const;

/** What the oracle does for the user at set times, or when a webhook arrives. */
export interface Schedules extends ReturnType<typeof createSchedules> {}

/** Each schedule has a delegation for itself alone and for what it does. */
export function createSchedules(http: HttpClient, signer: OracleSigner) {
  const toPath = (id: string) => `${PATH}/${encodeURIComponent(id)}`;
  const change = (id: string, body: UpdateSchedule): Promise<Schedule> =>
    http.requestJson({ method: 'PATCH', path: toPath(id), body });
  const delegate = async (
    { id, ...terms }: ScheduleTerms & Pick<Schedule, 'id'>,
    expiration?: number,
  ) => {
    const nb = { ...(await buildScheduleClaims(terms)) };
    return delegateRuns(http, signer, { purpose: `schedule/${id}`, nb, expiration });
  };
  return {
    /** Newest first. */
    async list(options?: RequestOptions): Promise<readonly Schedule[]> {
      return (await http.get<ScheduleList>(PATH, options)).schedules;
    },
    get(id: string, options?: RequestOptions): Promise<Schedule> {
      return http.get(toPath(id), options);
    },
    /** Signs a delegation for the schedule and creates it. The secret of a webhook is in this reply only. */
    async create({
      id = crypto.randomUUID(),
      expiration,
      ...schedule
    }: NewSchedule): Promise<ScheduleWithSecret> {
      const delegation = await delegate({ ...schedule, id }, expiration);
      const body = { ...schedule, id, delegation };
      return http.requestJson({ method: 'POST', path: PATH, body });
    },
    /** Signs the schedule again if it will do something else; its delegation expires when the last one would have, or in 90 days. */
    async update(id: string, changes: Omit<UpdateSchedule, 'delegation'>): Promise<Schedule> {
      if (!SIGNED.some((field) => changes[field] !== undefined)) return change(id, changes);
      const { delegation: before, ...schedule } = await http.get<Schedule>(toPath(id));
      // Changes that are undefined change nothing.
      const terms = { ...schedule, ...JSON.parse(JSON.stringify(changes)) };
      const { expiration = 0 } = before ?? {};
      const isValid = expiration > http.discovery.now();
      const delegation = await delegate(terms, isValid ? expiration : undefined);
      return change(id, { ...changes, delegation });
    },
    /** Signs what a schedule does, as it was read, so that it can run, or can run for longer. */
    async authorize(
      schedule: Pick<Schedule, 'id' | keyof ScheduleTerms>,
      { expiration }: { readonly expiration?: number } = {},
    ): Promise<Schedule> {
      return change(schedule.id, { delegation: await delegate(schedule, expiration) });
    },
    async delete(id: string): Promise<void> {
      await http.requestJson({ method: 'DELETE', path: toPath(id) });
    },
    /** Starts a run now, in addition to those at its times. */
    run(id: string): Promise<ScheduleTriggered> {
      return http.requestJson({ method: 'POST', path: `${toPath(id)}/run` });
    },
    /** Newest first. */
    async runs(
      id: string,
      options?: RequestOptions & { readonly limit?: number },
    ): Promise<readonly ScheduleRun[]> {
      return (await http.get<ScheduleRunList>(`${toPath(id)}/runs`, options)).runs;
    },
    /** Replaces the secret of a webhook. */
    replaceSecret(id: string): Promise<ScheduleWithSecret> {
      return http.requestJson({ method: 'POST', path: `${toPath(id)}/secret` });
    },
  };
}
