import { arch, cpus, loadavg, totalmem, type } from 'node:os';

/** The machine the figures come from, and what else it was doing. */
export function machineNow(): string {
  const memory = `${Math.round(totalmem() / 2 ** 30)} GB`;
  const cores = `${cpus().length} × ${cpus()[0]?.model.trim() || arch()}`;
  const load = loadavg()[0]?.toFixed(1);
  return `${cores}, ${memory}, ${type()}, Node ${process.versions.node}; its load before was ${load}`;
}
