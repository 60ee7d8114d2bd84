export { addressKey } from './address-key.js';
export { keepKeyFile, readKeyFile } from './key-file.js';
export { type LruLimits, LruMap, textBytes } from './lru-map.js';
export { RateLimiter, type RateLimiterOptions, type RateVerdict } from './rate-limiter.js';
