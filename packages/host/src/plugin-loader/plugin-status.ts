import type { OraclePlugin } from '@sibyl/plugin-kit';
import type { Selection } from './select-plugins.js';

/** How one plugin stands. */
export interface PluginStatus {
  readonly name: string;
  readonly version: string;
  readonly isLoaded: boolean;
  /** Why it is not loaded. */
  readonly reason?: string;
}

export function pluginStatus(
  plugins: readonly OraclePlugin[],
  { off }: Pick<Selection, 'off'>,
): PluginStatus[] {
  return plugins.map(({ name, version }) => {
    const reason = off.get(name);
    return { name, version, isLoaded: reason === undefined, ...(reason && { reason }) };
  });
}

/** What is loaded, what is not, and why, in one line. */
export function summaryOf(status: readonly PluginStatus[]): string {
  const loaded = status.filter(({ isLoaded }) => isLoaded).map(({ name }) => name);
  const off = status
    .filter(({ isLoaded }) => !isLoaded)
    .map(({ name, reason }) => `${name} (${reason})`);
  const rest = off.length > 0 ? `; not loaded: ${off.join(', ')}` : '';
  return `plugins: ${loaded.join(', ') || 'none'}${rest}`;
}
