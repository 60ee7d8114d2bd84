import type { IncomingHttpHeaders } from 'node:http';
import type { Credentials } from './authenticator.js';

/** The bearer counts only beside `X-Auth-Type: ucan` (contract A3). */
export function credentialsOf(headers: IncomingHttpHeaders): Credentials {
  return {
    invocation: isUcan(headers['x-auth-type']) ? bearerOf(headers.authorization) : undefined,
    delegation: presentOf(headers['x-ucan-delegation']),
  };
}

/** A header that came twice arrives as a list; a bad bearer must not go unread because of that. */
const isUcan = (header: string | string[] | undefined) =>
  String(header)
    .split(',')
    .some((type) => type.trim().toLowerCase() === 'ucan');

/** Another scheme beside `X-Auth-Type: ucan` is a bad invocation, not a missing one. */
function bearerOf(header: string | undefined): string | undefined {
  if (!header?.trim()) return undefined;
  return /^bearer +(.*)$/i.exec(header.trim())?.[1] ?? '';
}

function presentOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && header.trim() ? header.trim() : undefined;
}
