import { existsSync } from 'node:fs';
import type { z } from 'zod';
import { type ApiKey, Environment, type UpstreamAddress } from './environment.js';

/** The parsed and frozen configuration. */
export interface Config {
  readonly host: string;
  readonly port: number;
  /** The operator port, if there is one. */
  readonly metricsPort: number | undefined;
  readonly dataDir: string;
  readonly logLevel: Environment['LOG_LEVEL'];
  readonly nodes: {
    readonly addresses: readonly UpstreamAddress[];
    readonly caFile: string | undefined;
    readonly http2: Environment['GATEWAY_HTTP2'];
    readonly timeoutMs: number;
    readonly maxReplyBytes: number;
    readonly pollMs: number;
    readonly maxLag: number;
    /** Names of metadata that clients may send to nodes. */
    readonly forwardedMetadata: readonly string[];
  };
  readonly schema: {
    readonly descriptorsFile: string | undefined;
    readonly prefix: string;
    readonly legacy: boolean;
    readonly maxPageLimit: number;
  };
  readonly compat: 'node' | undefined;
  readonly gating: {
    readonly auth: Environment['GATEWAY_AUTH'];
    readonly apiKeys: readonly ApiKey[];
    readonly did: string | undefined;
    readonly ucanIssuers: readonly string[];
    readonly perMinute: number | undefined;
    readonly proxies: number;
  };
  readonly corsOrigins: readonly string[];
  readonly cache: { readonly maxBytes: number; readonly bypassSecret: string | undefined };
  readonly batchLimit: number;
  readonly watch: {
    readonly max: number;
    readonly maxPerCaller: number;
    readonly stallMs: number;
  };
  readonly requestTimeoutMs: number;
}

/** All configuration errors, in one message for the operator. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** Reads the environment once; an empty variable counts as unset. */
export function loadConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value?.trim()));
  const parsed = Environment.safeParse(given);
  const issues = [...(parsed.error?.issues.map(describeIssue) ?? []), ...findIssues(given)];
  if (!parsed.success || issues.length > 0) throw new ConfigError(formatIssues(issues));
  return Object.freeze(buildConfig(parsed.data));
}

function buildConfig(env: Environment): Config {
  return {
    host: env.GATEWAY_HOST,
    port: env.GATEWAY_PORT,
    metricsPort: env.GATEWAY_METRICS_PORT,
    dataDir: env.DATA_DIR,
    logLevel: env.LOG_LEVEL,
    nodes: Object.freeze({
      addresses: Object.freeze(env.GATEWAY_UPSTREAMS),
      caFile: env.GATEWAY_UPSTREAM_CA,
      http2: env.GATEWAY_HTTP2,
      timeoutMs: env.GATEWAY_TIMEOUT_SECONDS * 1000,
      maxReplyBytes: env.GATEWAY_MAX_REPLY_SIZE,
      pollMs: env.GATEWAY_BLOCK_POLL_MS,
      maxLag: env.GATEWAY_MAX_LAG,
      forwardedMetadata: Object.freeze(env.GATEWAY_FORWARD_METADATA),
    }),
    schema: Object.freeze({
      descriptorsFile: env.GATEWAY_DESCRIPTORS,
      prefix: env.GATEWAY_PREFIX,
      // A node does not have them.
      legacy: env.GATEWAY_LEGACY && env.GATEWAY_COMPAT === undefined,
      maxPageLimit: env.GATEWAY_PAGE_LIMIT,
    }),
    compat: env.GATEWAY_COMPAT,
    gating: Object.freeze({
      auth: env.GATEWAY_AUTH,
      apiKeys: Object.freeze(env.GATEWAY_API_KEYS),
      did: env.GATEWAY_DID,
      ucanIssuers: Object.freeze(env.GATEWAY_UCAN_ISSUERS),
      perMinute: env.GATEWAY_RATE_LIMIT_PER_MINUTE,
      proxies: env.GATEWAY_TRUST_PROXY ?? 0,
    }),
    corsOrigins: Object.freeze(env.GATEWAY_CORS_ORIGIN),
    cache: Object.freeze({
      maxBytes: env.GATEWAY_CACHE_SIZE,
      bypassSecret: env.GATEWAY_CACHE_BYPASS_SECRET,
    }),
    batchLimit: env.GATEWAY_BATCH_LIMIT,
    watch: Object.freeze({
      max: env.GATEWAY_WATCHERS,
      maxPerCaller: env.GATEWAY_WATCHERS_PER_CALLER,
      stallMs: env.GATEWAY_WATCH_STALL_SECONDS * 1000,
    }),
    requestTimeoutMs: env.GATEWAY_REQUEST_TIMEOUT_SECONDS * 1000,
  };
}

interface ConfigIssue {
  readonly variable: string;
  readonly problem: string;
  readonly remedy: string;
}

function describeIssue(issue: z.core.$ZodIssue): ConfigIssue {
  const variable = String(issue.path[0]);
  const meaning = Environment.shape[variable as keyof Environment].description ?? '';
  return { variable, problem: issue.message, remedy: `${meaning}. Unset it for the default` };
}

/** Issues across variables and with files, reported together with those of single variables. */
function findIssues(env: NodeJS.ProcessEnv): ConfigIssue[] {
  return [...checkUpstreams(env), ...checkApiKeys(env), ...checkFiles(env)];
}

function checkUpstreams(env: NodeJS.ProcessEnv): ConfigIssue[] {
  if (env.GATEWAY_UPSTREAMS) return [];
  const remedy = 'Set it to the addresses of nodes, such as grpc://127.0.0.1:9090';
  return [{ variable: 'GATEWAY_UPSTREAMS', problem: 'missing', remedy }];
}

function checkApiKeys(env: NodeJS.ProcessEnv): ConfigIssue[] {
  if (env.GATEWAY_AUTH !== 'api-key' || env.GATEWAY_API_KEYS) return [];
  const remedy = 'Set it to the SHA-256 of each key: printf %s "$KEY" | sha256sum';
  return [
    {
      variable: 'GATEWAY_API_KEYS',
      problem: 'missing, but required by GATEWAY_AUTH=api-key',
      remedy,
    },
  ];
}

function checkFiles(env: NodeJS.ProcessEnv): ConfigIssue[] {
  return ['GATEWAY_DESCRIPTORS', 'GATEWAY_UPSTREAM_CA'].flatMap((variable) => {
    const path = env[variable];
    if (!path || existsSync(path)) return [];
    return [
      {
        variable,
        problem: `the file ${path} does not exist`,
        remedy: 'Set it to an existing file',
      },
    ];
  });
}

function formatIssues(issues: readonly ConfigIssue[]): string {
  const lines = issues.map(
    ({ variable, problem, remedy }) => `  ${variable} (gateway): ${problem}\n      → ${remedy}`,
  );
  const count = issues.length === 1 ? 'One variable is' : `${issues.length} variables are`;
  return `${count} wrong in the environment:\n${lines.join('\n')}`;
}
