import type { z } from 'zod';
import { Environment } from './environment.js';
import type { Fault } from './fault.js';
import { type ModelsConfig, modelFaults, modelsConfigOf } from './models-config.js';

/** What the environment says, checked, named and frozen. */
export interface Config {
  readonly host: string;
  readonly port: number;
  readonly metricsPort: number | undefined;
  readonly dataDir: string;
  readonly databaseUrl: string | undefined;
  readonly logLevel: Environment['LOG_LEVEL'];
  readonly bodyLimit: number;
  readonly corsOrigins: readonly string[];
  readonly trustProxy: number | string[] | undefined;
  readonly oracle: {
    readonly name: string;
    readonly mnemonic: string | undefined;
    readonly privateKey: string | undefined;
    readonly did: string | undefined;
    readonly entityDid: string | undefined;
  };
  readonly auth: { readonly maxTtlSeconds: number; readonly allowDelegationLogin: boolean };
  readonly models: ModelsConfig;
  readonly chain: {
    readonly restUrl: string | undefined;
    readonly blocksyncUrl: string | undefined;
  };
  readonly turns: {
    readonly instructions: string | undefined;
    readonly maxSteps: number;
    readonly contextTokens: number;
    readonly maxPerUser: number;
    readonly streamStallMs: number;
    readonly logMs: number;
  };
  /** Hosts or CIDRs beyond the public internet that may be called. */
  readonly outgoingAllow: readonly string[];
  readonly rateLimits: { readonly perCaller: number; readonly anonymous: number };
}

/** Every fault of the environment, in one message for the operator. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** Reads the environment once; an empty variable counts as unset. */
export function loadConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value?.trim()));
  const parsed = Environment.safeParse(given);
  const faults = [...(parsed.error?.issues.map(describeFault) ?? []), ...crossFaults(given)];
  if (!parsed.success || faults.length > 0) throw new ConfigError(explain(faults));
  return Object.freeze(configOf(parsed.data));
}

function configOf(env: Environment): Config {
  return {
    host: env.HOST,
    port: env.PORT,
    metricsPort: env.METRICS_PORT,
    dataDir: env.DATA_DIR,
    databaseUrl: env.DATABASE_URL,
    logLevel: env.LOG_LEVEL,
    bodyLimit: env.BODY_LIMIT,
    corsOrigins: Object.freeze(env.CORS_ORIGIN),
    trustProxy: env.TRUST_PROXY,
    oracle: Object.freeze({
      name: env.ORACLE_NAME,
      mnemonic: env.ORACLE_MNEMONIC,
      privateKey: env.ORACLE_PRIVATE_KEY,
      did: env.ORACLE_DID,
      entityDid: env.ORACLE_ENTITY_DID,
    }),
    auth: Object.freeze({
      maxTtlSeconds: env.UCAN_AUTH_MAX_TTL_SECONDS,
      allowDelegationLogin: env.UCAN_ALLOW_DELEGATION_LOGIN,
    }),
    models: modelsConfigOf(env),
    chain: Object.freeze({ restUrl: env.CHAIN_REST_URL, blocksyncUrl: env.BLOCKSYNC_GRAPHQL_URL }),
    turns: Object.freeze({
      instructions: env.ORACLE_INSTRUCTIONS,
      maxSteps: env.TURN_MAX_STEPS,
      contextTokens: env.TURN_CONTEXT_TOKENS,
      maxPerUser: env.TURNS_PER_USER,
      streamStallMs: env.STREAM_STALL_SECONDS * 1000,
      logMs: env.RUN_LOG_HOURS * 60 * 60 * 1000,
    }),
    outgoingAllow: Object.freeze(env.OUTGOING_ALLOW),
    rateLimits: Object.freeze({
      perCaller: env.RATE_LIMIT_PER_MINUTE,
      anonymous: env.RATE_LIMIT_ANONYMOUS_PER_MINUTE,
    }),
  };
}

function describeFault(issue: z.core.$ZodIssue): Fault {
  const variable = String(issue.path[0]);
  const meaning = Environment.shape[variable as keyof Environment].description ?? '';
  return { variable, problem: issue.message, remedy: `${meaning}. Unset it for the default` };
}

/** Faults of several variables together: found even when one of them alone is wrong too. */
function crossFaults(env: NodeJS.ProcessEnv): Fault[] {
  return [oracleKeyFaults, modelFaults].flatMap((check) => check(env));
}

function oracleKeyFaults(env: NodeJS.ProcessEnv): Fault[] {
  if (!env.ORACLE_MNEMONIC || !env.ORACLE_PRIVATE_KEY) return [];
  return [
    {
      variable: 'ORACLE_MNEMONIC',
      problem: 'set together with ORACLE_PRIVATE_KEY, so the key is ambiguous',
      remedy: 'Keep one of the two',
    },
  ];
}

function explain(faults: readonly Fault[]): string {
  const lines = faults.map(
    ({ variable, problem, remedy }) => `  ${variable} (host): ${problem}\n      → ${remedy}`,
  );
  const count = faults.length === 1 ? 'One variable is' : `${faults.length} variables are`;
  return `${count} wrong in the environment:\n${lines.join('\n')}`;
}
