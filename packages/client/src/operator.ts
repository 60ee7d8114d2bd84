import type {
  AuditLog,
  OperatorFailures,
  OperatorHosts,
  OperatorJobs,
  OperatorOverview,
  OperatorPlugins,
  OperatorSpeed,
  OperatorTrace,
  OperatorTurns,
  OperatorUsers,
  UserBlocked,
} from '@sibyl/protocol';
import type { HttpClient, RequestOptions } from './http/http-client.js';

interface Days extends RequestOptions {
  readonly days?: number;
  readonly limit?: number;
}

/** What operators see and do; for everyone else each call fails with `forbidden`. */
export interface OperatorRoutes extends ReturnType<typeof createOperatorRoutes> {}

export const createOperatorRoutes = (http: HttpClient) => ({
  overview(options?: RequestOptions): Promise<OperatorOverview> {
    return http.get('/operator/overview', options);
  },
  hosts(options?: RequestOptions): Promise<OperatorHosts> {
    return http.get('/operator/hosts', options);
  },
  turns(
    options?: RequestOptions & {
      readonly state?: 'open' | 'failed' | 'all';
      readonly user?: string;
      readonly cause?: string;
      readonly limit?: number;
    },
  ): Promise<OperatorTurns> {
    return http.get('/operator/turns', options);
  },
  /** The spans of one turn. */
  trace(runId: string, options?: RequestOptions): Promise<OperatorTrace> {
    return http.get(`/operator/turns/${encodeURIComponent(runId)}`, options);
  },
  /** With `user`, only that one, also if it has not used the oracle. */
  users(options?: Days & { readonly user?: string }): Promise<OperatorUsers> {
    return http.get('/operator/users', options);
  },
  failures(options?: Days): Promise<OperatorFailures> {
    return http.get('/operator/failures', options);
  },
  /** The time to the first text of answers over the last hours. */
  speed(options?: RequestOptions & { readonly hours?: number }): Promise<OperatorSpeed> {
    return http.get('/operator/speed', options);
  },
  plugins(options?: RequestOptions): Promise<OperatorPlugins> {
    return http.get('/operator/plugins', options);
  },
  jobs(options?: RequestOptions): Promise<OperatorJobs> {
    return http.get('/operator/jobs', options);
  },
  /** Newest first; `before` is the id of an entry. */
  audit(
    options?: RequestOptions & { readonly limit?: number; readonly before?: string },
  ): Promise<AuditLog> {
    return http.get('/operator/audit', options);
  },
  block(user: string, reason?: string): Promise<UserBlocked> {
    const body = { user, ...(reason && { reason }) };
    return http.requestJson({ method: 'POST', path: '/operator/block', body });
  },
  unblock(user: string): Promise<UserBlocked> {
    return http.requestJson({ method: 'POST', path: '/operator/unblock', body: { user } });
  },
});
