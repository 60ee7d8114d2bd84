import type { ModelError, ModelFailure } from './model.js';

/** Why calls of models fail, as operators see it. */
export const MODEL_CAUSES = {
  dns: "The name of the provider's host cannot be resolved",
  connection_refused: "The provider's host refuses connections",
  connection_lost: 'The connection to the provider broke',
  unreachable: 'The network of the provider cannot be reached',
  tls: 'The TLS connection to the provider failed',
  timeout: 'The provider did not answer in time',
  wrong_key: 'The provider rejects the key',
  no_credit: 'The account at the provider is out of credit',
  rate_limit: 'The provider limits the rate of requests',
  provider_error: 'The provider has an error',
  request_rejected: 'The provider rejects the request',
} as const;

export type ModelCause = keyof typeof MODEL_CAUSES;

const codes: Readonly<Record<string, ModelCause>> = {
  ENOTFOUND: 'dns',
  EAI_AGAIN: 'dns',
  EAI_FAIL: 'dns',
  ECONNREFUSED: 'connection_refused',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  EACCES: 'unreachable',
  ETIMEDOUT: 'timeout',
  UND_ERR_CONNECT_TIMEOUT: 'timeout',
  EPROTO: 'tls',
};

const TLS = /^(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|HOSTNAME_MISMATCH)/;

const byKind: Readonly<Record<ModelError['kind'], ModelCause>> = {
  auth: 'wrong_key',
  billing: 'no_credit',
  rate_limit: 'rate_limit',
  timeout: 'timeout',
  server: 'provider_error',
  network: 'connection_lost',
  unknown: 'request_rejected',
};

/** One of a fixed number of causes, for counting. */
export function toModelCause({ kind, failure: { code = '' } }: ModelError): ModelCause {
  if (kind !== 'network') return byKind[kind];
  return codes[code] ?? (TLS.test(code) ? 'tls' : byKind[kind]);
}

/** One line for an operator: cause, host, status, and what the provider said. */
export function describeModelFailure(error: ModelError): string {
  const { host, status, code, text }: ModelFailure = error.failure;
  const where = [host, status && `HTTP ${status}`, code].filter(Boolean).join(', ');
  const said = text && text !== code ? `: ${text}` : '';
  return `${MODEL_CAUSES[toModelCause(error)]}${where && ` (${where})`}${said}`;
}
