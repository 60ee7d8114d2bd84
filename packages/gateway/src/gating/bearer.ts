import type { IncomingHttpHeaders } from 'node:http';

/** The token of `Authorization: Bearer …`; undefined if there is none. */
export function bearerOf({ authorization }: IncomingHttpHeaders): string | undefined {
  return /^bearer +(\S+)$/i.exec(authorization?.trim() ?? '')?.[1];
}
