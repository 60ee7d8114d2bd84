import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import {
  type OperatorAction,
  type OperatorJobs,
  type OperatorPlugins,
  type OperatorTrace,
  OracleError,
  type Sharing,
  type UserBlocked,
} from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import type { PluginStatus } from '../plugins/select-plugins.js';
import type { HostReports } from './host-reports.js';
import { OperatorViews, type OperatorViewsDeps, orUnavailable } from './operator-views.js';

interface OperatorServiceDeps extends OperatorViewsDeps {
  readonly allowList: CallerAllowList;
  /** The operators of the environment, who cannot be blocked. */
  readonly operators: readonly string[];
  readonly status: readonly PluginStatus[];
  readonly plugins: readonly LoadedPlugin[];
  readonly logger: Logger;
}

/** What operators do. Every change, and every look at what a user shares, is recorded in the audit log. */
export class OperatorService {
  readonly views: OperatorViews;

  constructor(private readonly deps: OperatorServiceDeps) {
    this.views = new OperatorViews(deps);
  }

  get hosts(): HostReports {
    return this.deps.hosts;
  }

  async readTrace(operator: string, runId: string): Promise<OperatorTrace> {
    const trace = await this.views.trace(runId);
    // Before they are shown: without an entry, nothing is.
    if (trace.spans.some((span) => span.arguments))
      await this.record(operator, 'view_arguments', runId);
    return trace;
  }

  async block(operator: string, user: string, reason: string | undefined): Promise<UserBlocked> {
    if (user === operator || this.deps.operators.includes(user))
      throw new OracleError('validation_failed', { message: ['user: an operator'] });
    await this.record(operator, 'block_user', user, reason);
    const changed = await this.deps.allowList.setBlocked(user, true, reason);
    return { user, blocked: true, changed };
  }

  async unblock(operator: string, user: string): Promise<UserBlocked> {
    await this.record(operator, 'unblock_user', user);
    const changed = await this.deps.allowList.setBlocked(user, false);
    return { user, blocked: false, changed };
  }

  listPlugins(): OperatorPlugins {
    return {
      plugins: this.deps.status.map(({ name, version, isLoaded, reason }) => ({
        name,
        version,
        isLoaded,
        ...(reason !== undefined && { missing: reason }),
      })),
    };
  }

  /** The work of the host, then that of the plugins. */
  async listJobs(): Promise<OperatorJobs['jobs']> {
    const { store, plugins, logger } = this.deps;
    const own = await orUnavailable(store.turnReports.countJobs());
    const ofPlugins = await Promise.all(
      plugins.map(async ({ name, plugin, services }) => {
        try {
          const jobs = (await plugin.getJobs?.(services)) ?? [];
          return jobs.map(({ nextAt, ...job }) => ({
            ...job,
            plugin: name,
            ...(nextAt && { nextAt: nextAt.toISOString() }),
          }));
        } catch (err) {
          logger.warn({ err, plugin: name, hook: 'getJobs' }, 'plugin failed');
          return [];
        }
      }),
    );
    return [...own, ...ofPlugins.flat()];
  }

  async listActions(limit: number, before?: string): Promise<OperatorAction[]> {
    return [...(await orUnavailable(this.deps.store.audit.list(limit, before)))];
  }

  async readSharing(user: string): Promise<Sharing> {
    return { toolArguments: await this.deps.store.sharedArguments.has(user) };
  }

  async setSharing(user: string, { toolArguments }: Sharing): Promise<Sharing> {
    const { sharedArguments } = this.deps.store;
    await (toolArguments ? sharedArguments.add(user) : sharedArguments.remove(user));
    return { toolArguments };
  }

  /** If it cannot be recorded, it does not happen. */
  private async record(
    operator: string,
    action: OperatorAction['action'],
    target: string,
    note?: string,
  ): Promise<void> {
    await this.deps.store.audit.add({ operator, action, target, note });
    this.deps.logger.info({ did: operator, action, target }, 'operator action');
  }
}
