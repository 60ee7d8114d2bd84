import { base64 } from './base-text.js';
import type { Ipld, IpldMap } from './ipld.js';
import { Link } from './link.js';

/** DAG-JSON text: keys in order, links as `{"/":cid}`, bytes as `{"/":{"bytes":base64}}`. */
export function encodeDagJson(value: Ipld): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (value instanceof Link) return `{"/":"${value}"}`;
  if (value instanceof Uint8Array) {
    return `{"/":{"bytes":"${base64(value).replace(/=+$/, '')}"}}`;
  }
  if (Array.isArray(value)) return `[${value.map(encodeDagJson).join(',')}]`;
  const map = value as IpldMap;
  // The default sort compares UTF-16 units, exactly as ucanto's encoder does.
  const fields = Object.keys(map)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${encodeDagJson(map[key] as Ipld)}`);
  return `{${fields.join(',')}}`;
}
