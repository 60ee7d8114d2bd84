import type { HttpClient } from './http/http-client.js';
import type { OperatorRoutes } from './oracle-client.js';

/** The routes of operators; for everyone else they fail with `forbidden`. */
export const createOperatorRoutes = (http: HttpClient): OperatorRoutes => ({
  overview: ({ signal } = {}) => http.requestJson({ path: '/operator/overview', signal }),
  hosts: ({ signal } = {}) => http.requestJson({ path: '/operator/hosts', signal }),
  turns: ({ signal, ...query } = {}) =>
    http.requestJson({ path: '/operator/turns', query, signal }),
  trace: (runId, { signal } = {}) =>
    http.requestJson({ path: `/operator/turns/${encodeURIComponent(runId)}`, signal }),
  users: ({ signal, ...query } = {}) =>
    http.requestJson({ path: '/operator/users', query, signal }),
  failures: ({ signal, ...query } = {}) =>
    http.requestJson({ path: '/operator/failures', query, signal }),
  speed: ({ signal, ...query } = {}) =>
    http.requestJson({ path: '/operator/speed', query, signal }),
  plugins: ({ signal } = {}) => http.requestJson({ path: '/operator/plugins', signal }),
  jobs: ({ signal } = {}) => http.requestJson({ path: '/operator/jobs', signal }),
  audit: ({ signal, ...query } = {}) =>
    http.requestJson({ path: '/operator/audit', query, signal }),
  block: (user, reason) =>
    http.requestJson({
      method: 'POST',
      path: '/operator/block',
      body: { user, ...(reason && { reason }) },
    }),
  unblock: (user) =>
    http.requestJson({ method: 'POST', path: '/operator/unblock', body: { user } }),
});
