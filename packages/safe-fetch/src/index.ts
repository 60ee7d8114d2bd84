export type { AddressLookup } from './address-rules.js';
export {
  createSafeFetch,
  type SafeFetch,
  type SafeFetchInit,
  type SafeFetchLimits,
  type SafeFetchOptions,
} from './safe-fetch.js';
export { SafeFetchError, type SafeFetchErrorCode } from './safe-fetch-error.js';
