export { type JsonScan, type JsonScanLimits, scanJson } from '@sibyl/protocol/json-scan';
export { type LruLimits, LruMap, textBytes } from '@sibyl/protocol/lru-map';
export {
  ByteBudget,
  type ByteLimits,
  type ByteReservation,
  ChunkCounter,
  type ExceededLimit,
  readChunks,
} from './byte-budget.js';
export { type DocsFile, DocsPage, type DocsPageOptions } from './docs-page.js';
export { readKeyFile, readOrCreateKeyFile } from './key-file.js';
export { Listeners } from './listeners.js';
export {
  createRefusal,
  type Holder,
  type PlaceLimit,
  Places,
  type PlacesOptions,
  Rounds,
  type RoundsOptions,
  type Slice,
  toShareKey,
} from './places.js';
export {
  logUnhandledRejections,
  type ProcessLogger,
  waitForShutdown,
  waitForUncaughtException,
} from './process-signals.js';
export {
  RateLimiter,
  type RateLimiterOptions,
  type RateVerdict,
  readForwardedAddress,
  toAddressKey,
} from './rate-limiter.js';
export {
  abortable,
  abortableIterable,
  ChangeSignal,
  createAbortReason,
  retry,
  settlesWithin,
  type TimeLimit,
  TimeoutError,
  withTimeout,
} from './waiting.js';
