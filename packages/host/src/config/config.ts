import type { Feature } from '@sibyl/plugin-kit/host';
import {
  ConfigError,
  type ConfigIssue,
  readEnvironment,
  readVariables,
  type Variables,
} from '@sibyl/server-kit/environment';
import { Environment, findOlderVariables } from './environment.js';
import { buildModelsConfig, checkModels } from './models-config.js';

/** The variables of the host, validated, named and frozen. */
export type Config = ReturnType<typeof buildConfig>;

export type CheckedConfig =
  | { readonly config: Config; readonly issues?: never }
  | { readonly config?: never; readonly issues: readonly ConfigIssue[] };

/** Reads the host's own configuration, or all that is wrong with it. */
export function checkConfig(env: Variables): CheckedConfig {
  const remedy = 'Unset it for the default';
  const read = readVariables(env, { name: 'host', schema: Environment, remedy });
  const issues = [...(read.issues ?? []), ...checkCombinations(env)];
  if (!read.values || issues.length > 0) return { issues };
  return { config: buildConfig(read.values, findOlderVariables(env)) };
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

function buildConfig(env: Environment, ignored: readonly string[]) {
  return Object.freeze({
    host: env.HOST,
    port: env.PORT,
    metricsPort: env.METRICS_PORT,
    ...toStoreConfig(env),
    logLevel: env.LOG_LEVEL,
    /** Variables of an older host that are set, and what to set instead. */
    ignored: Object.freeze(ignored),
    ...toHttpConfig(env),
    oracle: Object.freeze({
      name: env.ORACLE_NAME,
      mnemonic: env.ORACLE_MNEMONIC,
      privateKey: env.ORACLE_PRIVATE_KEY,
      did: env.ORACLE_DID,
      entityDid: env.ORACLE_ENTITY_DID,
    }),
    auth: toAuthConfig(env),
    tracing: Object.freeze({
      /** Of a collector; undefined if nothing is exported. */
      endpoint: env.OTEL_EXPORTER_OTLP_ENDPOINT,
      capturesContent: env.OTEL_CAPTURE_CONTENT,
    }),
    models: buildModelsConfig(env),
    chain: Object.freeze({ restUrl: env.CHAIN_REST_URL, blocksyncUrl: env.BLOCKSYNC_GRAPHQL_URL }),
    sessionsPerUser: env.SESSIONS_PER_USER || Number.POSITIVE_INFINITY,
    files: toFilesConfig(env),
    turns: toTurnsConfig(env),
    sockets: toSocketsConfig(env),
    /** Hosts or CIDRs beyond the public internet that may be called. */
    outgoingAllow: Object.freeze(env.OUTGOING_ALLOW),
    rateLimits: Object.freeze({
      perCaller: env.RATE_LIMIT_PER_MINUTE,
      anonymous: env.RATE_LIMIT_ANONYMOUS_PER_MINUTE,
    }),
  });
}

const toStoreConfig = (env: Environment) => ({
  dataDir: env.DATA_DIR,
  databaseUrl: env.DATABASE_URL,
  /** For connections that keep their session, if `databaseUrl` is a pooler. */
  databaseDirectUrl: env.DATABASE_DIRECT_URL,
  databasePoolSize: env.DATABASE_POOL_SIZE,
  /** Bytes; 0 for no check. */
  diskMinFree: env.DISK_MIN_FREE,
  /** Bytes of an archive that a user imports. */
  importLimit: env.IMPORT_LIMIT,
  /** Undefined: everything is kept. */
  retentionDays: env.RETENTION_DAYS,
});

const toHttpConfig = (env: Environment) => ({
  bodyLimit: env.BODY_LIMIT,
  filesBodyLimit: Math.max(env.BODY_LIMIT, Math.min(env.FILES_BODY_LIMIT, env.BODIES_LIMIT / 4)),
  /** Bytes of all request bodies that are being read. */
  bodiesLimit: env.BODIES_LIMIT,
  corsOrigins: Object.freeze(env.CORS_ORIGIN),
  trustProxy: env.TRUST_PROXY,
  /** Where clients reach the host, without a slash at the end. */
  publicUrl: toPublicUrl(env),
});

function toPublicUrl({ PUBLIC_URL, HOST, PORT }: Environment): string {
  if (PUBLIC_URL) return PUBLIC_URL.replace(/\/+$/, '');
  if (HOST === '0.0.0.0' || HOST === '::') return `http://localhost:${PORT}`;
  return `http://${HOST.includes(':') ? `[${HOST}]` : HOST}:${PORT}`;
}

const toAuthConfig = (env: Environment) =>
  Object.freeze({
    maxTtlSeconds: env.UCAN_AUTH_MAX_TTL_SECONDS,
    allowDelegationLogin: env.UCAN_ALLOW_DELEGATION_LOGIN,
    /** The most days until the expiry of a delegation that may log in. */
    loginMaxDays: env.DELEGATION_LOGIN_MAX_DAYS,
    /** DIDs that may call; undefined for everyone. */
    callersAllow: env.CALLERS_ALLOW && Object.freeze(env.CALLERS_ALLOW),
    /** DIDs of operators. */
    operators: Object.freeze(env.OPERATORS ?? []),
  });

const toFilesConfig = (env: Environment) =>
  Object.freeze({
    /** Bytes of one file. */
    maxBytes: env.FILE_LIMIT,
    maxBytesPerUser: env.FILES_PER_USER,
    maxBytesTotal: env.FILES_MAX,
    daily: Object.freeze({
      maxBytesPerAddress: env.FILES_PER_ADDRESS_PER_DAY,
      maxBytesPerNewUser: env.FILES_PER_NEW_USER_PER_DAY,
    }),
    /** S3-compatible storage, with its key and bucket. */
    url: env.FILES_URL,
  });

const toTurnsConfig = (env: Environment) =>
  Object.freeze({
    instructions: env.ORACLE_INSTRUCTIONS,
    maxSteps: env.TURN_MAX_STEPS,
    contextTokens: env.TURN_CONTEXT_TOKENS,
    maxPerUser: env.TURNS_PER_USER,
    maxPaused: env.PAUSED_RUNS_PER_USER,
    /** Matches of tools that need approval. */
    approvals: Object.freeze(env.APPROVALS),
    /** Whether the running turns of dead hosts are continued. */
    resumesTurns: env.RESUME_TURNS,
    /** Of all users, on this host. */
    max: env.TURNS_MAX,
    maxCharacters: env.TURN_MAX_CHARACTERS,
    maxMs: env.TURN_MAX_SECONDS * 1000,
    /** Of all users and all hosts; infinite if not limited. */
    tokensPerDay: env.MODEL_TOKENS_PER_DAY ?? Number.POSITIVE_INFINITY,
    hookTimeoutMs: env.PLUGIN_TIMEOUT_SECONDS * 1000,
    streamsPerUser: env.STREAMS_PER_USER,
    streamStallMs: env.STREAM_STALL_SECONDS * 1000,
    storeWaitMs: env.STORE_WAIT_SECONDS * 1000,
    logMs: env.RUN_LOG_HOURS * 60 * 60 * 1000,
  });

const toSocketsConfig = (env: Environment) =>
  Object.freeze({
    maxPerUser: env.SOCKETS_PER_USER,
    maxPerAddress: env.SOCKETS_PER_ADDRESS,
    maxTotal: env.SOCKETS_MAX,
    /** Bytes that all sockets together may leave unread. */
    backlogLimit: env.SOCKET_BACKLOG_LIMIT,
    messageLimit: env.SOCKET_MESSAGE_LIMIT,
    callTimeoutMs: env.BROWSER_CALL_TIMEOUT_SECONDS * 1000,
    /** Whether events of plugins are validated before they are sent. */
    checksEvents: env.NODE_ENV !== 'production',
  });

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
