import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Diagnosis, OraclePlugin, PluginDatabase } from '@sibyl/plugin-kit';
import { INVITATION_MAX_DAYS, type OperatorAction } from '@sibyl/protocol';
import type { SafeFetch } from '@sibyl/safe-fetch';
import { withTimeout } from '@sibyl/server-kit';
import { mintInvitation } from '../auth/caller-allow-list.js';
import { findOracleIdentity, type OracleIdentity, toKeyFilePath } from '../auth/oracle-identity.js';
import { type Config, loadConfig } from '../config/config.js';
import { describeModelFailure } from '../models/failure-cause.js';
import { ModelError } from '../models/model.js';
import { createModels } from '../models/models.js';
import { previewRetention, type RetentionPreview } from '../own-data/retention.js';
import type { SelectedPlugin } from '../plugins/select-plugins.js';
import type { InvitedCaller } from '../store/caller-store.js';
import { probeDatabase } from '../store/open-database.js';
import { COMMAND_LINE, type ListedUser } from '../store/operators/operator-store.js';
import type { UserSum } from '../store/operators/turn-reports.js';
import { toSqlitePath } from '../store/sqlite/sqlite.js';
import { openStore, type Store } from '../store/store.js';
import { checkWritable } from './startup-checks.js';

const MODEL_TIMEOUT_MS = 30_000;
const DIAGNOSIS_TIMEOUT_MS = 60_000;
const DAY_MS = 24 * 60 * 60 * 1000;

/** What a start would find: a working part, none yet and the file it creates, or the reason why it would fail. */
export type Found<T> = T | { readonly makes: string } | { readonly fault: string };

/** The DID of the oracle's key, or the file in which the first start stores a new key. Creates nothing. */
export async function checkKey(config: Config): Promise<Found<{ readonly did: string }>> {
  return probe(async () => {
    const identity = await findOracleIdentity(config);
    return identity
      ? { did: identity.did }
      : describeMissing(toKeyFilePath(config.dataDir), config);
  });
}

/** Whether the store works and has the tables of this version, or the file that the first start creates. Changes nothing. */
export async function checkStore(config: Config): Promise<Found<{ readonly isBehind: boolean }>> {
  return probe(async () => {
    const state = await probeDatabase(config);
    if (state === 'absent') return describeMissing(toSqlitePath(config.dataDir), config);
    return { isBehind: state === 'behind' };
  });
}

async function describeMissing(path: string, { dataDir }: Config): Promise<Found<never>> {
  const reason = await checkWritable(resolve(dataDir));
  return reason ? { fault: reason } : { makes: path };
}

async function probe<T>(check: () => Promise<Found<T>>): Promise<Found<T>> {
  try {
    return await check();
  } catch (error) {
    return { fault: describeError(error) };
  }
}

/** Asks the main model for one word; returns why it does not answer, or undefined if it does. */
export async function checkModel(config: Config): Promise<string | undefined> {
  const signal = AbortSignal.timeout(MODEL_TIMEOUT_MS);
  try {
    const parts = createModels(config.models)
      .get('main')
      .stream({
        system: 'Answer with one word.',
        messages: [{ role: 'user', content: 'Say OK' }],
        tools: [],
        signal,
      });
    for await (const part of parts) if (part.type === 'text') return undefined;
    return 'it ended without an answer';
  } catch (error) {
    if (signal.aborted) return 'it does not answer in time';
    return error instanceof ModelError ? describeModelFailure(error) : describeError(error);
  }
}

const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** What a plugin finds about the services it depends on; its own failure is a finding too. */
export async function diagnosePlugin(
  { plugin, name, config }: SelectedPlugin,
  fetch: SafeFetch,
): Promise<readonly Diagnosis[]> {
  const limit = { ms: DIAGNOSIS_TIMEOUT_MS, message: 'it does not end in time' };
  try {
    const found = await withTimeout(limit, async () =>
      plugin.diagnose?.({ config, fetch, logger: silent }),
    );
    return found ?? [];
  } catch (error) {
    const remedy = `Correct the hook "diagnose" of the plugin`;
    return [{ name, ok: false, text: `its check failed: ${describeError(error)}`, remedy }];
  }
}

/** Runs a task on the tables of a plugin, in the store that the environment names. */
export async function withPluginTables<T>(
  { name, tables, migrations }: OraclePlugin,
  work: (tables: PluginDatabase) => Promise<T>,
): Promise<T> {
  return withStore(loadConfig(), async (store) =>
    work(await store.pluginTables.open({ plugin: name, tables, migrations, plugins: [name] })),
  );
}

/** An invitation, and the link that opens the chat page with it. */
export interface PrintedInvitation {
  readonly invitation: string;
  readonly link: string;
  /** Unix seconds. */
  readonly expiration: number;
}

/** Signs invitations with the key of the oracle that the environment names. */
export async function createInvitations(
  { days, count }: { readonly days: number; readonly count: number },
  config = loadConfig(),
): Promise<readonly PrintedInvitation[]> {
  if (!(days > 0 && days <= INVITATION_MAX_DAYS))
    throw new Error(`An invitation lasts from 1 to ${INVITATION_MAX_DAYS} days`);
  const identity = await requireIdentity(config);
  const page = `${config.publicUrl}/app`;
  return Array.from({ length: count }, () => {
    const { token: invitation, expiration } = mintInvitation(identity.signer, days);
    const link = `${page}#invite=${encodeURIComponent(invitation)}`;
    return { invitation, link, expiration };
  });
}

/** The users who redeemed an invitation, newest first. */
export const listCallers = (): Promise<readonly InvitedCaller[]> =>
  withStore(loadConfig(), (store) => store.callers.list());

/** Ends the access of an invited user within seconds; returns whether there was one. */
export const removeCaller = (did: string): Promise<boolean> =>
  withStore(loadConfig(), (store) => store.callers.remove(did));

/** Those of the environment, and those that `changeOperators` added. */
export async function listOperators(
  config = loadConfig(),
): Promise<{ readonly listed: readonly string[]; readonly added: readonly ListedUser[] }> {
  const added = await withStore(config, (store) => store.operators.list());
  return { listed: config.auth.operators, added };
}

/** Adds or removes an operator, within seconds also on running hosts; returns whether that changed anything. */
export const changeOperators = (change: 'add' | 'remove', did: string): Promise<boolean> =>
  withStore(loadConfig(), async (store) => {
    const hasChanged = await store.operators[change](did);
    const action = change === 'add' ? 'add_operator' : 'remove_operator';
    if (hasChanged) await store.audit.add({ operator: COMMAND_LINE, action, target: did });
    return hasChanged;
  });

/** Blocks a user or admits it again, within seconds also on running hosts; returns whether that changed anything. */
export const changeBlocked = (change: 'add' | 'remove', did: string, note?: string) =>
  withStore(loadConfig(), async (store): Promise<boolean> => {
    const hasChanged = await store.blockedUsers[change](did, note);
    const action = change === 'add' ? 'block_user' : 'unblock_user';
    if (hasChanged) await store.audit.add({ operator: COMMAND_LINE, action, target: did, note });
    return hasChanged;
  });

/** What users used in the last days, and who is blocked. */
export const listUsers = (
  days: number,
): Promise<{ readonly users: readonly UserSum[]; readonly blocked: readonly ListedUser[] }> =>
  withStore(loadConfig(), async ({ turnReports, blockedUsers }) => ({
    users: await turnReports.sumByUser(Date.now() - days * DAY_MS),
    blocked: await blockedUsers.list(),
  }));

/** What operators did, newest first. */
export const listAudit = (limit: number): Promise<readonly OperatorAction[]> =>
  withStore(loadConfig(), (store) => store.audit.list(limit));

/** What RETENTION_DAYS, or another number of days, deletes; undefined if everything is kept. */
export async function showRetention(
  wanted?: number,
  config = loadConfig(),
): Promise<(RetentionPreview & { readonly days: number }) | undefined> {
  const days = wanted ?? config.retentionDays;
  if (days === undefined) return undefined;
  const preview = await withStore(config, (store) => previewRetention(store, days));
  return { days, ...preview };
}

async function withStore<T>(config: Config, work: (store: Store) => Promise<T>): Promise<T> {
  const { did, signer } = await requireIdentity(config);
  const { databaseUrl, dataDir } = config;
  if (!databaseUrl && !existsSync(toSqlitePath(dataDir))) throw notStartedYet('database', config);
  const store = await openStore({
    databaseUrl,
    dataDir,
    secretKey: signer.exportSeed(),
    oracleDid: did,
    onConnectionLost: () => undefined,
  });
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

/** Without a key, the command runs in the wrong folder: a new key would belong to no oracle. */
async function requireIdentity(config: Config): Promise<OracleIdentity> {
  const identity = await findOracleIdentity(config);
  if (!identity) throw notStartedYet('oracle key', config);
  return identity;
}

const notStartedYet = (missing: string, { dataDir }: Config) =>
  new Error(
    `There is no ${missing} in ${dataDir} yet. Start the oracle once, or set DATA_DIR to its folder.`,
  );

const describeError = (error: unknown) => (error instanceof Error ? error.message : String(error));
