import { Controller, Get, Res } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { Health, Landing, Readiness, type ReadinessCheck } from '@sibyl/protocol';
import type { Response } from 'express';
import { OracleIdentity } from '../auth/oracle-identity.js';
import type { HostLiveness } from '../bus/host-bus.js';
import type { ModelHealth } from '../models/observed-models.js';
import type { DiskSpace } from '../store/disk-space.js';
import type { ProbeResult, WriteProbe } from '../store/store.js';
import { describeStoreError, type StoreOutage } from '../store/store-errors.js';
import { HostFacts } from './discovery.controller.js';
import { Public } from './ucan-guard.js';

interface ReadinessDeps {
  readonly probe: WriteProbe;
  readonly disk: DiskSpace | undefined;
  readonly outage: Pick<StoreOutage, 'current' | 'isFull'> | undefined;
  readonly liveness: Pick<HostLiveness, 'isAlive'>;
  readonly model: ModelHealth;
  /** How many plugins are loaded. */
  readonly plugins: number;
}

/**
 * Decides whether this host should receive requests. It is not ready if the store does not accept writes, the disk is
 * almost full or the host is stopping. A failing model is only reported: all hosts share the provider, and history,
 * sessions and other models still work.
 */
export class ReadinessChecks {
  private isDraining = false;
  /** When a check was first seen to fail, by its name. */
  private readonly failingSince = new Map<string, Date>();

  constructor(private readonly deps: ReadinessDeps) {}

  /** Reports the host as not ready from now on. */
  drain(): void {
    this.isDraining = true;
  }

  async check(): Promise<Readiness> {
    const { probe, model, plugins, outage } = this.deps;
    const [written, space] = await Promise.all([probe.check(), this.checkDisk()]);
    // The probe is small: on a full disk it may succeed while messages do not.
    const result = written === 'writable' && outage?.isFull ? 'full' : written;
    const disk = this.date('disk', space);
    const host = this.date('host', this.checkHost());
    const store = this.date('store', describeProbe(result), outage?.current?.since);
    const isReady = [host, store, disk].every(({ status }) => status !== 'failing');
    return {
      status: isReady ? 'ready' : 'not_ready',
      timestamp: new Date().toISOString(),
      checks: {
        host,
        store,
        disk,
        model: model.check(),
        plugins: { status: 'ok', message: `Plugins loaded: ${plugins}` },
      },
    };
  }

  /** Adds since when it has failed: as given, or when this was first noticed. */
  private date(name: string, check: ReadinessCheck, knownSince?: Date): ReadinessCheck {
    if (check.status !== 'failing') {
      this.failingSince.delete(name);
      return check;
    }
    const since = this.failingSince.get(name) ?? knownSince ?? new Date();
    this.failingSince.set(name, since);
    return { ...check, since: since.toISOString() };
  }

  private checkHost(): ReadinessCheck {
    if (this.isDraining) return { status: 'failing', message: 'The host is stopping' };
    if (!this.deps.liveness.isAlive)
      return { status: 'failing', message: 'The host has lost its connections to the other hosts' };
    return { status: 'ok', message: 'The host accepts requests' };
  }

  private async checkDisk(): Promise<ReadinessCheck> {
    const { disk } = this.deps;
    if (!disk) return { status: 'ok', message: 'The database is not on the disk of this host' };
    if (await disk.isLow()) {
      return {
        status: 'failing',
        message:
          'The free disk space is below DISK_MIN_FREE; new sessions, messages and delegations are rejected',
      };
    }
    return { status: 'ok', message: 'Enough space is free' };
  }
}

function describeProbe(result: ProbeResult): ReadinessCheck {
  switch (result) {
    case 'writable':
      return { status: 'ok', message: 'The database accepts writes' };
    case 'timeout':
      return { status: 'failing', message: 'The database does not answer in time' };
    case 'unknown-error':
      return { status: 'failing', message: 'A test write failed; see the log' };
    default:
      return { status: 'failing', message: describeStoreError(result) };
  }
}

@Public()
@Controller()
export class HealthController {
  constructor(
    private readonly oracle: OracleIdentity,
    private readonly readiness: ReadinessChecks,
    private readonly facts: HostFacts,
  ) {}

  @Get()
  @Describe({ summary: 'Name and status of this host', reply: Landing })
  landing(): Landing {
    const { page } = this.facts.links;
    const talk = page ? `; talk to it at ${page}` : '';
    const message = `${this.oracle.name} is running${talk}; its API is described at /docs`;
    return { status: 'ok', message, timestamp: new Date().toISOString() };
  }

  @Get('health')
  @Describe({ summary: 'Liveness: 200 as long as the process answers', reply: Health })
  health(): Health {
    return { status: 'ok', timestamp: new Date().toISOString() };
  }

  @Get('health/ready')
  @Describe({
    summary:
      'Readiness: 503 if the store does not accept writes, the disk is almost full or the host is stopping',
    reply: Readiness,
    otherReplies: { 503: { when: 'The host is not ready', reply: Readiness } },
  })
  async ready(@Res({ passthrough: true }) response: Response): Promise<Readiness> {
    const readiness = await this.readiness.check();
    if (readiness.status === 'not_ready') response.status(503).setHeader('Retry-After', 5);
    return readiness;
  }
}
