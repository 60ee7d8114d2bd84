import type { NewSchedule, Schedule, UpdateSchedule } from '@sibyl/client';
import { type Call, type Command, findAction, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { plainText, table } from '../terminal.js';

export const RUN_DAYS = 90;
/** A hundred years. */
const MAX_DAYS = 36_500;
const DAY_SECONDS = 86_400;

/** What an oracle does for the user later, or regularly. */
export const schedules: Command = {
  name: 'schedules',
  summary: 'Let an oracle do something later, regularly, or when a webhook arrives',
  usage: [
    '[list] [url]',
    'add <name> [url] --message <text> (--cron <pattern> | --at <time> | --in <duration> | --webhook)',
    'show <id> [url]',
    'change <id> [url] [--message <text>] [--cron <pattern> | --at <time> | --in <duration>] [--result-url <url> | --result-to <address>]',
    'pause <id> [url]',
    'resume <id> [url]',
    'run <id> [url]',
    'authorize <id> [url] [--days <number>]',
    'remove <id> [url]',
  ],
  details: [
    'A schedule runs as you while a delegation is valid that your key signs for it and for what it does: its message, its times and where its results go. "change" signs the change; "authorize" signs the schedule again as it is; "sibyl delegate revoke" ends a delegation at once.',
    'An empty --result-url or --result-to removes the address.',
    '"show" lists the last runs. The secret of a webhook is printed once, by "add".',
  ].join('\n'),
  options: {
    message: { type: 'string', value: 'text', summary: 'What the oracle is asked each time' },
    cron: {
      type: 'string',
      value: 'pattern',
      summary: 'Minute, hour, day, month, weekday, such as "0 8 * * MON-FRI"',
    },
    timezone: {
      type: 'string',
      value: 'zone',
      summary: 'Of --cron; default: that of this machine',
    },
    at: { type: 'string', value: 'time', summary: 'Once, such as 2027-01-31T08:00' },
    in: { type: 'string', value: 'duration', summary: 'Once, such as 90m, 2h or 3d from now' },
    webhook: { type: 'boolean', summary: 'When its address is called' },
    'catch-up': {
      type: 'string',
      value: 'policy',
      summary: 'Times that the oracle missed: skip them (skip, the default), or run once (once)',
    },
    'result-url': { type: 'string', value: 'url', summary: 'Where results are posted' },
    'result-to': {
      type: 'string',
      value: 'address',
      summary:
        'A chat for results: what "/oracle results" shows in Slack, or "results here" in Matrix',
    },
    days: {
      type: 'string',
      value: 'number',
      summary: `Days until its delegation expires; default ${RUN_DAYS}`,
    },
  },
  async run(call) {
    const [name, ...rest] = call.args;
    const action = findAction(actions, name);
    const [subject, url] = name === 'list' ? ['', ...rest] : rest;
    if (subject === undefined)
      throw new UsageError(name === 'add' ? 'Name the schedule' : 'Name a schedule: its id');
    // Before the oracle is asked, so that mistakes are reported first.
    const wanted = readWanted(name, subject, call);
    const oracle = await openOracle(url, call.output);
    return action(oracle, call, wanted ?? subject);
  },
};

/** What `change` sends. */
type Change = Omit<UpdateSchedule, 'delegation'> & Pick<Schedule, 'id'>;
type Subject = string | NewSchedule | Change;
type Action = (oracle: OpenOracle, call: Call, subject: Subject) => Promise<number>;

const list: Action = async ({ client }, { output }) => {
  const found = await client.schedules.list();
  const rows = found.map((schedule) => [
    schedule.id,
    schedule.name,
    describeTrigger(schedule),
    schedule.status,
    schedule.nextDueAt ? `next ${formatTime(schedule.nextDueAt)}` : (schedule.reason ?? ''),
    describeExpiry(schedule),
  ]);
  output.result({ schedules: found }, plainText(rows.length > 0 ? table(rows) : 'No schedules'));
  return 0;
};

const add: Action = async ({ client }, { output }, wanted) => {
  const created = await client.schedules.create(wanted as NewSchedule);
  const { id, nextDueAt, webhookUrl, webhookSecret } = created;
  const lines = [
    `Added ${id}${nextDueAt ? `, next ${formatTime(nextDueAt)}` : ''}; ${describeExpiry(created)}`,
    ...(webhookUrl ? [`Webhook: ${webhookUrl}`, `Secret (shown once): ${webhookSecret}`] : []),
  ];
  output.result(created, plainText(lines.join('\n')));
  return 0;
};

const show: Action = async ({ client }, { output }, id) => {
  const schedule = await client.schedules.get(String(id));
  const runs = await client.schedules.runs(String(id));
  const facts = [
    ['name', schedule.name],
    ...listTerms(schedule),
    ['status', [schedule.status, schedule.reason].filter(Boolean).join(': ')],
    ['delegation', describeExpiry(schedule)],
    ['session', schedule.sessionId],
  ];
  const rows = runs.map((run) => [formatTime(run.dueAt), run.cause, run.status, run.error ?? '']);
  const text = [table(facts), rows.length > 0 ? table(rows) : 'No runs yet'].join('\n\n');
  output.result({ schedule, runs }, plainText(text));
  return 0;
};

/** What a delegation signs. */
const listTerms = (schedule: Schedule): string[][] => [
  ['message', schedule.message],
  ['when', describeTrigger(schedule)],
  ['results', schedule.resultUrl ?? schedule.resultTo ?? 'in its session'],
];

const change: Action = async ({ client }, { output }, wanted) => {
  const { id, ...changes } = wanted as Change;
  const schedule = await client.schedules.update(id, changes);
  output.result(schedule, `Changed and signed; ${describeExpiry(schedule)}`);
  return 0;
};

const setStatus =
  (status: 'active' | 'paused', text: string): Action =>
  async ({ client }, { output }, id) => {
    output.result(await client.schedules.update(String(id), { status }), text);
    return 0;
  };

const runNow: Action = async ({ client }, { output }, id) => {
  output.result(await client.schedules.run(String(id)), 'Started; "show" lists the result');
  return 0;
};

const authorize: Action = async ({ client }, { output, options }, id) => {
  const found = await client.schedules.get(String(id));
  const schedule = await client.schedules.authorize(found, readExpiration(options));
  const text = table([...listTerms(schedule), ['delegation', describeExpiry(schedule)]]);
  output.result(schedule, plainText(`Signed:\n\n${text}`));
  return 0;
};

const remove: Action = async ({ client }, { output }, id) => {
  await client.schedules.delete(String(id));
  output.result({ ok: true }, 'Removed');
  return 0;
};

const actions = {
  list,
  add,
  show,
  change,
  pause: setStatus('paused', 'Paused'),
  resume: setStatus('active', 'Resumed'),
  run: runNow,
  authorize,
  remove,
};

function readWanted(action: string | undefined, subject: string, call: Call) {
  if (action === 'add') return readNew(subject, call);
  return action === 'change' ? readChange(subject, call) : undefined;
}

function readChange(id: string, { options }: Call): Change {
  const { message, 'result-url': resultUrl, 'result-to': resultTo } = options;
  const hasTime = ['cron', 'at', 'in'].some((name) => options[name] !== undefined);
  const change = {
    id,
    ...(message !== undefined && { message: String(message) }),
    ...(hasTime && { trigger: readTrigger(options) }),
    ...(resultUrl !== undefined && { resultUrl: String(resultUrl) || null }),
    ...(resultTo !== undefined && { resultTo: String(resultTo) || null }),
  };
  if (Object.keys(change).length > 1) return change;
  throw new UsageError('Give what changes: --message, a time, --result-url or --result-to');
}

function readNew(name: string, { options }: Call): NewSchedule {
  if (!options.message) throw new UsageError('--message is missing');
  const catchUp = options['catch-up'];
  if (catchUp !== undefined && catchUp !== 'skip' && catchUp !== 'once')
    throw new UsageError('--catch-up must be skip or once');
  const { 'result-url': resultUrl, 'result-to': resultTo } = options;
  return {
    name,
    message: String(options.message),
    trigger: readTrigger(options),
    ...(catchUp !== undefined && { catchUp }),
    ...(resultUrl !== undefined && { resultUrl: String(resultUrl) }),
    ...(resultTo !== undefined && { resultTo: String(resultTo) }),
    ...readExpiration(options),
  };
}

function readTrigger({ cron, at, in: after, webhook, timezone }: Call['options']) {
  const given = [cron, at, after, webhook].filter((value) => value !== undefined);
  if (given.length !== 1) throw new UsageError('Give one of --cron, --at, --in and --webhook');
  if (webhook) return { type: 'webhook' } as const;
  if (cron === undefined) return { type: 'once', at: readTime(at, after).toISOString() } as const;
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return { type: 'cron', cron: String(cron), timezone: String(timezone ?? local) } as const;
}

const UNIT_MS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: DAY_SECONDS * 1000,
};

function readTime(at: unknown, after: unknown): Date {
  const [, amount, unit = ''] = /^(\d{1,6})([smhd])$/.exec(String(after)) ?? [];
  const time =
    at === undefined ? Date.now() + Number(amount) * (UNIT_MS[unit] ?? 0) : Date.parse(String(at));
  if (Number.isFinite(time)) return new Date(time);
  throw new UsageError(
    at === undefined
      ? '--in must be a number and s, m, h or d, such as 90m'
      : '--at must be a time, such as 2027-01-31T08:00',
  );
}

/** When a delegation expires. */
export function readExpiration({ days = String(RUN_DAYS) }: Call['options']) {
  if (!(Number(days) > 0 && Number(days) <= MAX_DAYS))
    throw new UsageError(`--days must be a number above 0, at most ${MAX_DAYS}`);
  return { expiration: Math.floor(Date.now() / 1000 + Number(days) * DAY_SECONDS) };
}

function describeTrigger({ trigger }: Pick<Schedule, 'trigger'>): string {
  switch (trigger.type) {
    case 'cron':
      return `${trigger.cron} (${trigger.timezone})`;
    case 'once':
      return formatTime(trigger.at);
    case 'webhook':
      return 'webhook';
    default:
      return trigger satisfies never;
  }
}

function describeExpiry({ delegation }: Pick<Schedule, 'delegation'>): string {
  if (!delegation) return 'no delegation';
  const { expiration } = delegation;
  if (expiration === undefined) return 'authorized without end';
  return `authorized until ${new Date(expiration * 1000).toLocaleString()}`;
}

const formatTime = (time: string) => new Date(time).toLocaleString();
