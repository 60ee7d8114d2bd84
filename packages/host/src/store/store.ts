import { withTimeout } from '@sibyl/server-kit';
import { sql } from 'kysely';
import { createHostId } from '../bus/host-bus.js';
import { AccessKeyStore } from './access-key-store.js';
import { ActivityStore } from './activity-store.js';
import { AnswerDetailsStore } from './answer-details.js';
import { ApprovalStore } from './approval-store.js';
import { CallerStore } from './caller-store.js';
import {
  createIdSource,
  type Database,
  type ReclaimedLog,
  type StoreContext,
  type Unit,
} from './database.js';
import { DelegationStore } from './delegation-store.js';
import { DiskSpace, oncePerSecond } from './disk-space.js';
import { createVault, type Vault } from './encryption.js';
import { FileChunkStore, FileStore } from './file-store.js';
import { FileTextStore } from './file-text-store.js';
import { GrantStore } from './grant-store.js';
import { IdempotencyStore } from './idempotency-store.js';
import { MessageStore } from './message-store.js';
import { type DatabaseOptions, openDatabase } from './open-database.js';
import { AuditStore, HostStore, UserList } from './operators/operator-store.js';
import { TurnReports } from './operators/turn-reports.js';
import { ExpiredRows } from './own-data/expired-rows.js';
import { ImportStore } from './own-data/import-store.js';
import { OwnerRows } from './own-data/owner-rows.js';
import { RemovalLog } from './own-data/removal-log.js';
import { PassageVectorStore } from './passage-vectors.js';
import { BlobStore, PluginTables, SecretStore, SessionStateStore } from './plugin-stores.js';
import { RevocationStore, SingleUseStore } from './revocation-store.js';
import { RoomStateStore, RoomStore } from './room-store.js';
import { RulesStore } from './rules-store.js';
import { TurnStore } from './runs/run.js';
import { RunStore } from './runs/run-store.js';
import { SearchStore } from './search/search-store.js';
import { SessionStore } from './session-store.js';
import { ErasureRequests, JobClaims } from './shared-jobs.js';
import { SocketStore } from './socket-store.js';
import { classifyStoreError, type StoreErrorKind, type StoreOutage } from './store-errors.js';
import { ThreadStore } from './thread-store.js';
import { ModelUsageStore, UsageStore } from './usage-store.js';

/** All stores of the host, on one database. */
export interface Store {
  readonly sessions: SessionStore;
  readonly messages: MessageStore;
  readonly answerDetails: AnswerDetailsStore;
  readonly runs: RunStore;
  readonly approvals: ApprovalStore;
  readonly activity: ActivityStore;
  readonly rules: RulesStore;
  readonly idempotency: IdempotencyStore;
  readonly rooms: RoomStore;
  readonly roomState: RoomStateStore;
  readonly delegations: DelegationStore;
  readonly grants: GrantStore;
  readonly accessKeys: AccessKeyStore;
  readonly threads: ThreadStore;
  readonly turns: TurnStore;
  readonly revocations: RevocationStore;
  readonly singleUse: SingleUseStore;
  readonly callers: CallerStore;
  readonly operators: UserList;
  readonly blockedUsers: UserList;
  /** Users who let operators see the arguments of their tool calls. */
  readonly sharedArguments: UserList;
  readonly audit: AuditStore;
  readonly hosts: HostStore;
  readonly turnReports: TurnReports;
  readonly sessionState: SessionStateStore;
  readonly secrets: SecretStore;
  readonly blobs: BlobStore;
  readonly modelUsage: ModelUsageStore;
  readonly files: FileStore;
  readonly fileTexts: FileTextStore;
  readonly passageVectors: PassageVectorStore;
  readonly fileChunks: FileChunkStore;
  readonly pluginTables: PluginTables;
  readonly search: SearchStore;
  readonly ownerRows: OwnerRows;
  readonly imports: ImportStore;
  readonly usage: UsageStore;
  readonly expired: ExpiredRows;
  readonly jobs: JobClaims;
  readonly erasures: ErasureRequests;
  readonly removals: RemovalLog;
  /** Undefined if no other host can use the database. */
  readonly sockets: SocketStore | undefined;
  /** The disk of DATA_DIR. */
  readonly dataDisk: DiskSpace;
  /** The same, if the database is there. */
  readonly disk: DiskSpace | undefined;
  /** Undefined if nothing observes the store. */
  readonly outage: StoreOutage | undefined;
  /** The current time in milliseconds, by the clock of the database. */
  now(): number;
  /** Rejects when the database does not answer. */
  ping(): Promise<void>;
  /** Inserts and deletes a row; rejects if the database does not accept writes. */
  probeWrite(): Promise<void>;
  /** Returns the space of deleted rows to the file system. */
  reclaim(log?: ReclaimedLog): Promise<void>;
  /** Waits for writes in progress, then closes the database. */
  close(): Promise<void>;
}

export interface StoreOptions extends DatabaseOptions {
  /** Identifies this host among those that share the database; default: a new id. */
  readonly hostId?: string | undefined;
  /** Whether other hosts see this one as running; default: always. */
  readonly isHostAlive?: (() => boolean) | undefined;
  /** 32 bytes from which the key for secrets at rest is derived. */
  readonly secretKey: Uint8Array;
  /** The current time in milliseconds. */
  readonly clock?: (() => number) | undefined;
  /** Minimum free bytes; below, new sessions and messages are rejected. 0 or unset: no limit. */
  readonly diskMinFree?: number | undefined;
  /** Returns the same database with its work observed. */
  readonly observe?: ((database: Database) => Database) | undefined;
  /** Observes failed and successful writes. */
  readonly outage?: StoreOutage | undefined;
}

const createFileStores = (context: StoreContext, hostId: string) => ({
  files: new FileStore(context),
  fileTexts: new FileTextStore(context, hostId),
  passageVectors: new PassageVectorStore(context, hostId),
  fileChunks: new FileChunkStore(context.database),
});

function createOwnDataStores(context: StoreContext, vault: Vault) {
  const ownerRows = new OwnerRows(context, vault);
  return {
    ownerRows,
    erasures: new ErasureRequests(context),
    imports: new ImportStore(context, ownerRows),
    usage: new UsageStore(context),
    expired: new ExpiredRows(context),
  };
}

/** Opens and migrates the database. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const vault = createVault(options.secretKey);
  const dataDisk = new DiskSpace(options.dataDir, options.diskMinFree ?? 0);
  const disk = options.databaseUrl ? undefined : dataDisk;
  await disk?.freeBallastIfFull();
  const found = await openDatabase({ ...options, onFull: () => disk?.freeBallast() });
  const clock = options.clock ?? found.now;
  const opened = options.observe?.(found) ?? found;
  const newId = createIdSource(clock);
  const database =
    options.outage?.watch(opened, (observed) => probeWrite(observed, newId())) ?? opened;
  const removals = new RemovalLog(options.dataDir, options.secretKey);
  const context = { database, clock, newId, disk, removals };
  const rooms = new RoomStore(context);
  const hostId = options.hostId ?? createHostId();
  const search = new SearchStore(context, options.dataDir);
  return {
    sessions: new SessionStore(context),
    messages: new MessageStore(context),
    answerDetails: new AnswerDetailsStore(context),
    runs: new RunStore(context, vault, { hostId, isAlive: options.isHostAlive }),
    approvals: new ApprovalStore(context, vault, hostId),
    activity: new ActivityStore(context),
    rules: new RulesStore(context, vault),
    idempotency: new IdempotencyStore(context),
    rooms,
    roomState: new RoomStateStore(context, rooms),
    delegations: new DelegationStore(context, vault),
    grants: new GrantStore(context, vault),
    accessKeys: new AccessKeyStore(context),
    threads: new ThreadStore(context),
    turns: new TurnStore(context),
    revocations: new RevocationStore(context),
    singleUse: new SingleUseStore(context),
    callers: new CallerStore(context),
    ...openOperatorStores(context),
    sessionState: new SessionStateStore(context),
    secrets: new SecretStore(context, vault),
    blobs: new BlobStore(context),
    modelUsage: new ModelUsageStore(context),
    ...createFileStores(context, hostId),
    pluginTables: new PluginTables(database),
    search,
    ...createOwnDataStores(context, vault),
    jobs: new JobClaims(context),
    sockets: openSockets(context, options),
    removals,
    dataDisk,
    disk,
    outage: options.outage,
    now: clock,
    ping: async () => {
      await sql`select 1`.execute(database.tables);
    },
    probeWrite: () => probeWrite(database, newId()),
    reclaim: (log) => database.reclaim(log),
    close: async () => {
      options.outage?.close();
      await search.close();
      await database.close();
    },
  };
}

/** Undefined without other hosts. */
const openSockets = (context: StoreContext, { hostId }: StoreOptions) =>
  context.database.engine === 'postgres' && hostId ? new SocketStore(context, hostId) : undefined;

/** What operators see and do. */
const openOperatorStores = (context: StoreContext) => ({
  operators: new UserList(context, 'operators'),
  blockedUsers: new UserList(context, 'blocked_users'),
  sharedArguments: new UserList(context, 'shared_arguments'),
  audit: new AuditStore(context),
  hosts: new HostStore(context),
  turnReports: new TurnReports(context),
});

/** Uses a new id, so that probes of several hosts do not wait for each other. */
function probeWrite(database: Database, id: string): Promise<void> {
  const key = { owner: 'readiness probe', key: id };
  const row = { ...key, body_hash: '', run_id: id, created_at: 0, expires_at: 0 };
  const unit: Unit<void> = async (tables) => {
    await tables.insertInto('idempotency_keys').values(row).execute();
    await tables
      .deleteFrom('idempotency_keys')
      .where('owner', '=', key.owner)
      .where('key', '=', key.key)
      .execute();
  };
  // A store with much to do has not failed.
  return database.write(unit, { isFirst: true });
}

const TIMEOUT_MS = 2_000;

export type ProbeResult = 'writable' | 'timeout' | 'unknown-error' | StoreErrorKind;

/** Checks with a real write whether the store accepts writes, without waiting for one that hangs. */
export class WriteProbe {
  private readonly write: () => Promise<ProbeResult>;

  constructor(store: Pick<Store, 'probeWrite'>) {
    this.write = oncePerSecond(() =>
      store.probeWrite().then(
        (): ProbeResult => 'writable',
        (error): ProbeResult => classifyStoreError(error) ?? 'unknown-error',
      ),
    );
  }

  /** All callers wait for the same write, each for at most two seconds; a write that hangs is not repeated. */
  async check(): Promise<ProbeResult> {
    const limit = { ms: TIMEOUT_MS, message: 'the write takes too long' };
    return withTimeout(limit, this.write).catch(() => 'timeout');
  }
}
