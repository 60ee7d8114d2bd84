import { isIP } from 'node:net';
import type { Feature } from '@sibyl/plugin-kit';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { z } from 'zod';

const flag = z.enum(['true', 'false']).transform((value) => value === 'true');
const whole = z.string().regex(/^\d+$/, { error: 'must be a whole number' }).transform(Number);
const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' });
const secret = z.string().trim().min(1);
const did = z.string().regex(/^did:[a-z0-9]+:\S+$/, { error: 'must be a DID, such as did:web:…' });

const SIZE = /^(\d+)(kb|mb|gb)?$/;
const byteFactors = { kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3 };
const bytes = z
  .string()
  .toLowerCase()
  .regex(SIZE, { error: 'must be a size, such as 512kb or 1mb' })
  .transform((text) => {
    const [, digits, unit] = SIZE.exec(text) ?? [];
    return Number(digits) * (byteFactors[unit as keyof typeof byteFactors] ?? 1);
  });
const size = bytes.refine((value) => value >= 1024, { error: 'must be at least 1kb' });

const list = z.string().transform((text) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean),
);

const dids = list
  .pipe(z.array(did))
  .refine((items) => items.length > 0, { error: 'must name at least one DID' });

const origins = list.refine((items) => items.every((item) => item === '*' || isOrigin(item)), {
  error: 'must be * or origins such as https://chat.example, separated by commas',
});

function isOrigin(text: string): boolean {
  return URL.canParse(text) && new URL(text).origin === text;
}

const proxies = z
  .string()
  .refine((text) => text !== 'true', {
    error: 'must name the proxies you trust: a number of hops, or addresses such as loopback',
  })
  .transform((text) => (/^\d+$/.test(text) ? Number(text) : list.parse(text)))
  .refine((value) => typeof value === 'number' || value.every(isProxy), {
    error: 'must be a number of hops, or loopback, linklocal, uniquelocal, addresses or CIDRs',
  });

function isProxy(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/');
  if (['loopback', 'linklocal', 'uniquelocal'].includes(text)) return true;
  const isRange = bits === undefined || /^\d{1,3}$/.test(bits);
  return isIP(address) !== 0 && isRange && rest.length === 0;
}

const allowed = list.refine(canAllow, {
  error: 'must be hosts, host:port or CIDRs, separated by commas',
});

function canAllow(entries: readonly string[]): boolean {
  try {
    createSafeFetch({ allow: entries });
    return true;
  } catch {
    return false;
  }
}

const FEATURE = /^([a-z][a-z0-9-]*)=(true|false|auto)$/;
const features = list
  .refine((items) => items.every((item) => FEATURE.test(item)), {
    error: 'must be plugins and whether they load, such as memory=false,slack=true',
  })
  .transform((items) => Object.fromEntries(items.map(parseFeature)));

function parseFeature(text: string): [string, Feature] {
  const [, name = '', choice] = FEATURE.exec(text) ?? [];
  return [name, choice === 'auto' ? 'auto' : choice === 'true'];
}

const modelId = z.string().regex(/^(offline|[^\s/,]+\/[^\s,]+)$/, {
  error: 'must be provider/model-id, such as openai/gpt-6-luna, or offline',
});
const modelIds = list.pipe(z.array(modelId));
const positive = whole.refine((value) => value > 0, { error: 'must be at least 1' });
const seconds = positive.refine((value) => value <= 2_000_000, {
  error: 'must be at most 2000000',
});
const port = whole.refine((value) => value <= 65_535, { error: 'must be a port, at most 65535' });

/** Every variable the host itself reads; a default is written as an operator would write it. */
export const Environment = z.object({
  PORT: port
    .prefault('3000')
    .describe('Port of the HTTP server and the socket; 0 picks a free one'),
  HOST: z.string().prefault('127.0.0.1').describe('Address to listen on; 0.0.0.0 for all'),
  DATA_DIR: z.string().prefault('./data').describe('Folder of the SQLite file and the oracle key'),
  DATABASE_URL: z
    .url({ protocol: /^postgres(ql)?$/, error: 'must be a postgres:// URL' })
    .optional()
    .describe('PostgreSQL instead of SQLite, such as postgres://user:password@host/database'),
  DATABASE_POOL_SIZE: positive
    .refine((value) => value <= 1000, { error: 'must be at most 1000' })
    .prefault('10')
    .describe('PostgreSQL connections this host opens at most'),
  DISK_MIN_FREE: bytes
    .prefault('100mb')
    .describe(
      'Free space for SQLite below which sessions, messages and delegations are refused; 0: no limit',
    ),
  ORACLE_NAME: z.string().min(1).max(80).prefault('Sibyl').describe('What the oracle is called'),
  ORACLE_MNEMONIC: z
    .string()
    .trim()
    .min(1)
    .optional()
    .describe('Makes the oracle key from these words'),
  ORACLE_PRIVATE_KEY: z
    .string()
    .trim()
    .min(1)
    .optional()
    .describe('The oracle key itself: 64 hex digits, or the M… form of ucanto'),
  ORACLE_DID: did
    .optional()
    .describe(
      "DID to act as, when it is not the key's own did:key; its document must list the key",
    ),
  ORACLE_ENTITY_DID: did.optional().describe('DID of the entity this oracle belongs to'),
  CORS_ORIGIN: origins
    .prefault('*')
    .describe('Origins whose pages may call, separated by commas; * for all'),
  BODY_LIMIT: size.prefault('1mb').describe('Largest request body, such as 512kb or 1mb'),
  BODIES_LIMIT: size
    .prefault('64mb')
    .describe(
      'Bytes of all request bodies being read at once; one address may use a quarter of it',
    ),
  TRUST_PROXY: proxies
    .optional()
    .describe('Proxies whose X-Forwarded-For is believed: a number of hops, or addresses'),
  UCAN_AUTH_MAX_TTL_SECONDS: seconds
    .prefault('900')
    .describe('How far ahead the expiry of an auth invocation may lie'),
  UCAN_ALLOW_DELEGATION_LOGIN: flag
    .prefault('true')
    .describe('Accept a delegation alone as proof of who is calling'),
  DELEGATION_LOGIN_MAX_DAYS: positive
    .optional()
    .describe(
      'A delegation that expires later than this many days from now, or never, may not log in; unset: any may',
    ),
  CALLERS_ALLOW: dids
    .optional()
    .describe(
      'DIDs that may call, separated by commas, besides those that redeem an invitation of `sibyl invite`; unset: everyone may call',
    ),
  PUBLIC_URL: httpUrl
    .optional()
    .describe('Address at which users reach this host, for links, such as https://oracle.example'),
  MODEL: modelId
    .optional()
    .describe(
      'Model that answers: openai/…, anthropic/…, google/…, openai-compatible/…, or offline; unset: a default of the provider whose key is set, else offline',
    ),
  MODEL_SMALL: modelId
    .optional()
    .describe("Cheaper model for titles and summaries; unset: a small one of MODEL's provider"),
  MODEL_CHOICES: modelIds
    .prefault('')
    .describe('Further models a message may ask for, separated by commas'),
  MODEL_BASE_URL: httpUrl
    .optional()
    .describe('Address of the openai-compatible server, such as http://127.0.0.1:11434/v1'),
  MODEL_API_KEY: secret
    .optional()
    .describe('Key for the openai-compatible server, if it wants one'),
  MODEL_FIRST_PART_TIMEOUT_SECONDS: seconds
    .prefault('120')
    .describe('Longest wait for the first sign of an answer'),
  MODEL_STALL_TIMEOUT_SECONDS: seconds
    .prefault('60')
    .describe('Longest silence in the middle of an answer'),
  OPENAI_API_KEY: secret.optional().describe('Key for openai/… models'),
  OPENAI_BASE_URL: httpUrl.optional().describe("Address instead of OpenAI's own"),
  ANTHROPIC_API_KEY: secret.optional().describe('Key for anthropic/… models'),
  ANTHROPIC_BASE_URL: httpUrl.optional().describe("Address instead of Anthropic's own"),
  GOOGLE_GENERATIVE_AI_API_KEY: secret.optional().describe('Key for google/… models'),
  GOOGLE_GENERATIVE_AI_BASE_URL: httpUrl.optional().describe("Address instead of Google's own"),
  ORACLE_INSTRUCTIONS: z
    .string()
    .max(20_000)
    .optional()
    .describe('What the operator wants every answer to follow, in plain words'),
  SESSIONS_PER_USER: whole
    .prefault('1000')
    .describe(
      'Sessions one user may keep; 0 for any number. Users of plugins, such as Slack, are not counted',
    ),
  TURN_MAX_STEPS: positive.prefault('20').describe('Model calls one turn may make'),
  TURN_CONTEXT_TOKENS: positive
    .prefault('100000')
    .describe('Tokens a model is sent at most; older turns are summed up beyond it'),
  TURNS_PER_USER: positive
    .prefault('20')
    .describe('Turns of one user running or queued, in all sessions and on all hosts together'),
  TURNS_MAX: positive
    .prefault('1000')
    .describe('Turns of all users running or queued on this host; more are refused with 503'),
  TURN_MAX_CHARACTERS: positive
    .prefault('1000000')
    .describe(
      'Characters the models may write in one turn: text, reasoning and tool arguments, those of sub-agents included',
    ),
  TURN_MAX_SECONDS: seconds
    .prefault('1800')
    .describe('How long one turn may run; what it has written by then is kept'),
  MODEL_TOKENS_PER_DAY: positive
    .optional()
    .describe(
      'Tokens all users together may spend on models per day in UTC, titles and summaries included; unset: any number',
    ),
  PLUGIN_TIMEOUT_SECONDS: seconds
    .prefault('15')
    .describe(
      'How long a plugin may take for its part of a turn, which goes on without it; a gate or a middleware that takes longer fails the turn or the tool call',
    ),
  STORE_WAIT_SECONDS: seconds
    .prefault('10')
    .describe(
      'How long an answer that cannot be stored is held back before its caller learns it, and how long a new session or message may wait for PostgreSQL until it is refused',
    ),
  STREAMS_PER_USER: positive
    .prefault('100')
    .describe(
      'Requests of one user that wait for an answer or stream one, on this host and in all sessions; more are refused with 429',
    ),
  STREAM_STALL_SECONDS: seconds
    .prefault('60')
    .describe('How long a reader of a stream may take nothing before it is dropped'),
  RUN_LOG_HOURS: whole
    .prefault('24')
    .describe('How long the frames of an ended turn can be read again; its message stays'),
  SOCKETS_PER_USER: positive.prefault('100').describe('Open sockets of one user'),
  SOCKETS_PER_ADDRESS: positive
    .prefault('2000')
    .describe('Open sockets of one address, whoever is behind it'),
  SOCKETS_MAX: positive
    .prefault('10000')
    .describe('Open sockets of all users together; further ones are refused with 503'),
  SOCKET_BACKLOG_LIMIT: size
    .prefault('64mb')
    .describe(
      'What all sockets together may leave unread in memory; beyond it the socket that is furthest behind is dropped, and may resume',
    ),
  SOCKET_MESSAGE_LIMIT: size
    .prefault('256kb')
    .describe('Largest message of a socket, such as the result of a browser tool'),
  BROWSER_CALL_TIMEOUT_SECONDS: seconds
    .prefault('15')
    .describe("How long the user's page may take to answer a browser tool or an action"),
  CHAIN_REST_URL: httpUrl.optional().describe('REST endpoint of the chain, to resolve did:ixo'),
  BLOCKSYNC_GRAPHQL_URL: httpUrl.optional().describe('Blocksync endpoint, to resolve did:ixo'),
  OUTGOING_ALLOW: allowed
    .prefault('')
    .describe('Private hosts or CIDRs the host may call although a user named them, by commas'),
  RATE_LIMIT_PER_MINUTE: positive.prefault('600').describe('Requests a minute of one caller'),
  RATE_LIMIT_ANONYMOUS_PER_MINUTE: positive
    .prefault('300')
    .describe('Requests a minute of one address without a proven caller'),
  METRICS_PORT: port.optional().describe('Port for Prometheus at /metrics; unset: none'),
  FEATURES: features
    .prefault('')
    .describe(
      'Plugins to load or not, such as memory=false,slack=true; the rest load when they have what they need',
    ),
  NODE_ENV: z
    .string()
    .optional()
    .describe('`production` leaves out the check of what plugins emit'),
  LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'])
    .prefault('info')
    .describe('Least important log line to write'),
});
export type Environment = z.infer<typeof Environment>;
