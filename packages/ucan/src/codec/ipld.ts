import type { Link } from './link.js';

/** What a UCAN's caveats and facts may hold. */
export type Ipld = null | boolean | number | string | Uint8Array | Link | readonly Ipld[] | IpldMap;

export interface IpldMap {
  readonly [key: string]: Ipld;
}

export function isIpldMap(value: Ipld | undefined): value is IpldMap {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}
