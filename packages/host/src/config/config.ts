import type { Feature } from '@sibyl/plugin-kit/host';
import {
  ConfigError,
  type ConfigIssue,
  readEnvironment,
  readVariables,
  type Variables,
} from '@sibyl/server-kit/environment';
import { Environment, findOlderVariables } from './environment.js';
import { buildModelsConfig, checkModels, type ModelsConfig } from './models-config.js';

/** The variables of the host, validated, named and frozen. */
export interface Config {
  readonly host: string;
  readonly port: number;
  readonly metricsPort: number | undefined;
  readonly dataDir: string;
  readonly databaseUrl: string | undefined;
  /** For connections that keep their session, if `databaseUrl` is a pooler. */
  readonly databaseDirectUrl: string | undefined;
  readonly databasePoolSize: number;
  /** Bytes; 0 for no check. */
  readonly diskMinFree: number;
  /** Undefined: everything is kept. */
  readonly retentionDays: number | undefined;
  /** Bytes of an archive that a user imports. */
  readonly importLimit: number;
  readonly logLevel: Environment['LOG_LEVEL'];
  /** Variables of an older host that are set, and what to set instead. */
  readonly ignored: readonly string[];
  readonly bodyLimit: number;
  readonly filesBodyLimit: number;
  /** Bytes of all request bodies that are being read. */
  readonly bodiesLimit: number;
  readonly corsOrigins: readonly string[];
  readonly trustProxy: number | string[] | undefined;
  readonly oracle: {
    readonly name: string;
    readonly mnemonic: string | undefined;
    readonly privateKey: string | undefined;
    readonly did: string | undefined;
    readonly entityDid: string | undefined;
  };
  /** Where clients reach the host, without a trailing slash. */
  /** The address of this host for links, without a slash at the end. */
  readonly publicUrl: string;
  readonly auth: {
    readonly maxTtlSeconds: number;
    readonly allowDelegationLogin: boolean;
    /** The most days until the expiry of a delegation that may log in. */
    readonly loginMaxDays: number | undefined;
    /** DIDs that may call; undefined for everyone. */
    readonly callersAllow: readonly string[] | undefined;
    /** DIDs of operators. */
    readonly operators: readonly string[];
  };
  readonly tracing: {
    /** Of a collector; undefined if nothing is exported. */
    readonly endpoint: string | undefined;
    readonly capturesContent: boolean;
  };
  readonly models: ModelsConfig;
  readonly chain: {
    readonly restUrl: string | undefined;
    readonly blocksyncUrl: string | undefined;
  };
  readonly sessionsPerUser: number;
  readonly files: {
    /** Bytes of one file. */
    readonly maxBytes: number;
    readonly maxBytesPerUser: number;
    readonly maxBytesTotal: number | undefined;
    readonly daily: { readonly maxBytesPerAddress: number; readonly maxBytesPerNewUser: number };
    /** S3-compatible storage, with its key and bucket. */
    readonly url: string | undefined;
  };
  readonly turns: {
    readonly instructions: string | undefined;
    readonly maxSteps: number;
    readonly contextTokens: number;
    readonly maxPerUser: number;
    readonly maxPaused: number;
    /** Matches of tools that need approval. */
    readonly approvals: readonly string[];
    /** Whether the running turns of dead hosts are continued. */
    readonly resumesTurns: boolean;
    /** Of all users, on this host. */
    readonly max: number;
    readonly maxCharacters: number;
    readonly maxMs: number;
    /** Of all users and all hosts; infinite if not limited. */
    readonly tokensPerDay: number;
    readonly hookTimeoutMs: number;
    readonly streamsPerUser: number;
    readonly streamStallMs: number;
    readonly storeWaitMs: number;
    readonly logMs: number;
  };
  readonly sockets: {
    readonly maxPerUser: number;
    readonly maxPerAddress: number;
    readonly maxTotal: number;
    /** Bytes that all sockets together may leave unread. */
    readonly backlogLimit: number;
    /** Bytes. */
    readonly messageLimit: number;
    readonly callTimeoutMs: number;
    /** Whether events of plugins are validated before they are sent. */
    readonly checksEvents: boolean;
  };
  /** Hosts or CIDRs beyond the public internet that may be called. */
  readonly outgoingAllow: readonly string[];
  readonly rateLimits: { readonly perCaller: number; readonly anonymous: number };
}

export type CheckedConfig =
  | { readonly config: Config; readonly issues?: never }
  | { readonly config?: never; readonly issues: readonly ConfigIssue[] };

/** Reads the host's own configuration, or all that is wrong with it. */
export function checkConfig(env: Variables): CheckedConfig {
  const remedy = 'Unset it for the default';
  const read = readVariables(env, { name: 'host', schema: Environment, remedy });
  const issues = [...(read.issues ?? []), ...checkCombinations(env)];
  if (!read.values || issues.length > 0) return { issues };
  const ignored = Object.freeze(findOlderVariables(env));
  return { config: Object.freeze({ ...buildConfig(read.values), ignored }) };
}

/** The plugins that FEATURES enables or disables; none if it is invalid. */
export const readFeatures = ({ FEATURES }: Variables): Readonly<Record<string, Feature>> =>
  Environment.shape.FEATURES.safeParse(FEATURES).data ?? {};

/** As `checkConfig`, but throws all issues as one ConfigError. */
export function loadConfig(env?: Variables): Config {
  const checked = checkConfig(readEnvironment(env));
  if (checked.config) return checked.config;
  throw new ConfigError('host', checked.issues);
}

function buildConfig(env: Environment): Omit<Config, 'ignored'> {
  return {
    host: env.HOST,
    port: env.PORT,
    metricsPort: env.METRICS_PORT,
    ...toStoreConfig(env),
    logLevel: env.LOG_LEVEL,
    ...toHttpConfig(env),
    oracle: Object.freeze({
      name: env.ORACLE_NAME,
      mnemonic: env.ORACLE_MNEMONIC,
      privateKey: env.ORACLE_PRIVATE_KEY,
      did: env.ORACLE_DID,
      entityDid: env.ORACLE_ENTITY_DID,
    }),
    publicUrl: toPublicUrl(env),
    auth: Object.freeze(toAuthConfig(env)),
    tracing: Object.freeze({
      endpoint: env.OTEL_EXPORTER_OTLP_ENDPOINT,
      capturesContent: env.OTEL_CAPTURE_CONTENT,
    }),
    models: buildModelsConfig(env),
    chain: Object.freeze({ restUrl: env.CHAIN_REST_URL, blocksyncUrl: env.BLOCKSYNC_GRAPHQL_URL }),
    sessionsPerUser: env.SESSIONS_PER_USER || Number.POSITIVE_INFINITY,
    files: Object.freeze({
      maxBytes: env.FILE_LIMIT,
      maxBytesPerUser: env.FILES_PER_USER,
      maxBytesTotal: env.FILES_MAX,
      daily: {
        maxBytesPerAddress: env.FILES_PER_ADDRESS_PER_DAY,
        maxBytesPerNewUser: env.FILES_PER_NEW_USER_PER_DAY,
      },
      url: env.FILES_URL,
    }),
    turns: toTurnsConfig(env),
    sockets: toSocketsConfig(env),
    outgoingAllow: Object.freeze(env.OUTGOING_ALLOW),
    rateLimits: Object.freeze({
      perCaller: env.RATE_LIMIT_PER_MINUTE,
      anonymous: env.RATE_LIMIT_ANONYMOUS_PER_MINUTE,
    }),
  };
}

function toPublicUrl({ PUBLIC_URL, HOST, PORT }: Environment): string {
  if (PUBLIC_URL) return PUBLIC_URL.replace(/\/+$/, '');
  if (HOST === '0.0.0.0' || HOST === '::') return `http://localhost:${PORT}`;
  return `http://${HOST.includes(':') ? `[${HOST}]` : HOST}:${PORT}`;
}

function toHttpConfig(env: Environment) {
  return {
    bodyLimit: env.BODY_LIMIT,
    filesBodyLimit: Math.max(env.BODY_LIMIT, Math.min(env.FILES_BODY_LIMIT, env.BODIES_LIMIT / 4)),
    bodiesLimit: env.BODIES_LIMIT,
    corsOrigins: Object.freeze(env.CORS_ORIGIN),
    trustProxy: env.TRUST_PROXY,
  };
}

function toSocketsConfig(env: Environment): Config['sockets'] {
  return Object.freeze({
    maxPerUser: env.SOCKETS_PER_USER,
    maxPerAddress: env.SOCKETS_PER_ADDRESS,
    maxTotal: env.SOCKETS_MAX,
    backlogLimit: env.SOCKET_BACKLOG_LIMIT,
    messageLimit: env.SOCKET_MESSAGE_LIMIT,
    callTimeoutMs: env.BROWSER_CALL_TIMEOUT_SECONDS * 1000,
    checksEvents: env.NODE_ENV !== 'production',
  });
}

function toStoreConfig(env: Environment) {
  return {
    dataDir: env.DATA_DIR,
    databaseUrl: env.DATABASE_URL,
    databaseDirectUrl: env.DATABASE_DIRECT_URL,
    databasePoolSize: env.DATABASE_POOL_SIZE,
    diskMinFree: env.DISK_MIN_FREE,
    importLimit: env.IMPORT_LIMIT,
    retentionDays: env.RETENTION_DAYS,
  };
}

function toAuthConfig(env: Environment): Config['auth'] {
  return {
    maxTtlSeconds: env.UCAN_AUTH_MAX_TTL_SECONDS,
    allowDelegationLogin: env.UCAN_ALLOW_DELEGATION_LOGIN,
    loginMaxDays: env.DELEGATION_LOGIN_MAX_DAYS,
    callersAllow: env.CALLERS_ALLOW && Object.freeze(env.CALLERS_ALLOW),
    operators: Object.freeze(env.OPERATORS ?? []),
  };
}

function toTurnsConfig(env: Environment): Config['turns'] {
  return Object.freeze({
    instructions: env.ORACLE_INSTRUCTIONS,
    maxSteps: env.TURN_MAX_STEPS,
    contextTokens: env.TURN_CONTEXT_TOKENS,
    maxPerUser: env.TURNS_PER_USER,
    maxPaused: env.PAUSED_RUNS_PER_USER,
    approvals: Object.freeze(env.APPROVALS),
    resumesTurns: env.RESUME_TURNS,
    max: env.TURNS_MAX,
    maxCharacters: env.TURN_MAX_CHARACTERS,
    maxMs: env.TURN_MAX_SECONDS * 1000,
    tokensPerDay: env.MODEL_TOKENS_PER_DAY ?? Number.POSITIVE_INFINITY,
    hookTimeoutMs: env.PLUGIN_TIMEOUT_SECONDS * 1000,
    streamsPerUser: env.STREAMS_PER_USER,
    streamStallMs: env.STREAM_STALL_SECONDS * 1000,
    storeWaitMs: env.STORE_WAIT_SECONDS * 1000,
    logMs: env.RUN_LOG_HOURS * 60 * 60 * 1000,
  });
}

/** Checks variables that depend on each other; each may be invalid by itself. */
function checkCombinations(env: Variables): ConfigIssue[] {
  return [checkOracleKey, checkDirectUrl, checkBodyLimits, checkModels].flatMap((check) =>
    check(env),
  );
}

/** Without DATABASE_URL, the host would use SQLite although the operator has a PostgreSQL server. */
function checkDirectUrl(env: Variables): ConfigIssue[] {
  if (!env.DATABASE_DIRECT_URL || env.DATABASE_URL) return [];
  return [
    {
      subject: 'DATABASE_DIRECT_URL (host)',
      problem: 'set, but DATABASE_URL is not',
      remedy: 'Set DATABASE_URL too, to the same address unless you use a pooler',
    },
  ];
}

/** With less, the largest body that BODY_LIMIT allows would always be rejected. */
function checkBodyLimits(env: Variables): ConfigIssue[] {
  const { BODY_LIMIT, BODIES_LIMIT } = Environment.shape;
  const body = BODY_LIMIT.safeParse(env.BODY_LIMIT || undefined).data ?? 0;
  const bodies = BODIES_LIMIT.safeParse(env.BODIES_LIMIT || undefined).data ?? body * 4;
  if (bodies >= body * 4) return [];
  return [
    {
      subject: 'BODIES_LIMIT (host)',
      problem: 'less than four times BODY_LIMIT',
      remedy: 'Raise it, or lower BODY_LIMIT',
    },
  ];
}

function checkOracleKey(env: Variables): ConfigIssue[] {
  if (!env.ORACLE_MNEMONIC || !env.ORACLE_PRIVATE_KEY) return [];
  return [
    {
      subject: 'ORACLE_MNEMONIC (host)',
      problem: 'set together with ORACLE_PRIVATE_KEY, so the key is ambiguous',
      remedy: 'Keep one of the two',
    },
  ];
}
