/** Request headers of the interface and what they mean. */
export const requestHeaders = {
  authorization: 'Bearer <invocation>: who is calling. Read only beside X-Auth-Type: ucan',
  'x-auth-type': 'ucan: read the Authorization header',
  'x-ucan-delegation': 'The user-to-oracle delegation, base64 CAR',
  'x-did': 'Informational, never used for authentication',
  'x-matrix-access-token': "Access token of the user's Matrix session",
  'x-matrix-homeserver': "Homeserver of the user's Matrix session",
  'x-timezone': "The user's IANA time zone",
  'x-request-id': 'Correlation id, echoed as X-Request-Id',
} as const;

/** Request headers a browser of another origin may send. */
export const corsRequestHeaders = [
  'Content-Type',
  'Authorization',
  'x-ucan-delegation',
  'x-matrix-access-token',
  'x-matrix-homeserver',
  'x-did',
  'x-request-id',
  'x-auth-type',
  'x-timezone',
  'Idempotency-Key',
  'Last-Event-ID',
] as const;

/** Methods a browser of another origin may use. */
export const corsMethods = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'] as const;

/** Response headers a browser of another origin may read. */
export const corsExposedHeaders = ['X-Request-Id'] as const;
