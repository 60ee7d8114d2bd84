import type { Readiness, ReadinessCheck } from '@sibyl/protocol';
import type { DiskSpace } from '../store/disk-space.js';
import { describeStoreFault } from '../store/store-fault.js';
import type { ProbeResult, WriteProbe } from '../store/write-probe.js';
import type { ModelHealth } from './model-health.js';

interface ReadinessDeps {
  readonly probe: WriteProbe;
  readonly disk: DiskSpace | undefined;
  readonly model: ModelHealth;
  /** How many plugins are loaded. */
  readonly plugins: number;
}

/**
 * Decides whether this host should receive requests. A store that takes no writes, a disk that is almost full and
 * a host that is stopping make it not ready. A failing model is only reported: every host shares the provider, and
 * history, sessions and other models still work.
 */
export class ReadinessChecks {
  private isDraining = false;

  constructor(private readonly deps: ReadinessDeps) {}

  /** Reports the host as not ready from now on. */
  drain(): void {
    this.isDraining = true;
  }

  async check(): Promise<Readiness> {
    const { probe, model, plugins } = this.deps;
    const [written, disk] = await Promise.all([probe.check(), this.checkDisk()]);
    const host = this.checkHost();
    const store = describeProbe(written);
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

  private checkHost(): ReadinessCheck {
    if (this.isDraining) return { status: 'failing', message: 'The host is stopping' };
    return { status: 'ok', message: 'The host accepts requests' };
  }

  private async checkDisk(): Promise<ReadinessCheck> {
    const { disk } = this.deps;
    if (!disk) return { status: 'ok', message: 'The database is not on the disk of this host' };
    if (await disk.isLow()) {
      return {
        status: 'failing',
        message:
          'Less space is free than DISK_MIN_FREE demands; new sessions, messages and delegations are refused',
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
      return { status: 'failing', message: describeStoreFault(result) };
  }
}
