type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** How long a provider asks to wait: from its headers, else from a `retryDelay` in the body. */
export function retryAfterOf(headers: Headers, body: string, now = Date.now()): number | undefined {
  const ms = Number(headers['retry-after-ms']);
  if (ms > 0) return ms / 1000;
  const given = String(headers['retry-after'] ?? '').trim();
  if (/^\d+(\.\d+)?$/.test(given)) return Number(given);
  const date = given ? Date.parse(given) : Number.NaN;
  if (!Number.isNaN(date)) return Math.max(0, (date - now) / 1000);
  const delay = /"retryDelay":\s*"(\d+(?:\.\d+)?)s"/.exec(body)?.[1];
  return delay ? Number(delay) : undefined;
}
