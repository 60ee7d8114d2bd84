import type { TableTypes } from '@sibyl/plugin-kit/tables';
import { activity } from './activity.js';
import { approvals } from './approvals.js';
import { branches } from './branches.js';
import { callers } from './callers.js';
import { clientIds, clientThreads } from './client-threads.js';
import { databaseInfo } from './database-info.js';
import { delegations } from './delegations.js';
import { feedback } from './feedback.js';
import { filePassages, fileVectors } from './file-passages.js';
import { fileChunks, files } from './files.js';
import { frames } from './frames.js';
import { hosts } from './hosts.js';
import { idempotencyKeys } from './idempotency-keys.js';
import { importJobs } from './import-jobs.js';
import { interrupts } from './interrupts.js';
import { messages } from './messages.js';
import { blockedUsers, operatorActions, operators, sharedArguments } from './operators.js';
import { blobs, secrets, sessionState } from './plugin-data.js';
import { revocations, singleUse } from './revocations.js';
import { roomState, rooms } from './rooms.js';
import { rules } from './rules.js';
import { runSteps } from './run-steps.js';
import { runs } from './runs.js';
import { searchDocuments, searchQueue } from './search.js';
import { sessions } from './sessions.js';
import { pageCalls, socketHosts } from './sockets.js';
import { modelUsage, usageDays } from './usage.js';

/** The tables of the host, in the order in which they are created: parents before the tables that refer to them. */
export const hostTables = [
  databaseInfo,
  hosts,
  sessions,
  rooms,
  roomState,
  messages,
  branches,
  feedback,
  clientThreads,
  clientIds,
  runs,
  frames,
  runSteps,
  interrupts,
  approvals,
  activity,
  rules,
  delegations,
  revocations,
  singleUse,
  callers,
  idempotencyKeys,
  sessionState,
  secrets,
  blobs,
  files,
  fileChunks,
  filePassages,
  fileVectors,
  searchQueue,
  searchDocuments,
  importJobs,
  usageDays,
  modelUsage,
  socketHosts,
  pageCalls,
  operators,
  blockedUsers,
  sharedArguments,
  operatorActions,
] as const;

/**
 * The tables as both engines hold them: timestamps are milliseconds, booleans 0 or 1, JSON is text.
 */
export type Schema = TableTypes<typeof hostTables>;
