/** The end of a DID, which differs; the whole is in a title. */
export function shortenDid(did: string): string {
  const id = did.replace(/^did:key:/, '');
  return id.length > 16 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id;
}

export function formatMs(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`;
}

const compact = new Intl.NumberFormat(undefined, { notation: 'compact' });
export const formatCount = (count: number): string => compact.format(count);

/** Without a currency: the prices have the one that the operator chose. */
export const formatCost = (cost: number | undefined): string =>
  cost === undefined ? '–' : cost.toFixed(cost < 1 ? 4 : 2);

export const formatBytes = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MB`;

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });

/** Relative under a day, then a date. */
export function formatTime(iso: string, now = Date.now()): string {
  const seconds = Math.round((Date.parse(iso) - now) / 1000);
  if (Math.abs(seconds) < 60) return relative.format(seconds, 'second');
  if (Math.abs(seconds) < 3600) return relative.format(Math.round(seconds / 60), 'minute');
  if (Math.abs(seconds) < 86_400) return relative.format(Math.round(seconds / 3600), 'hour');
  return new Date(iso).toLocaleString();
}
