import type { Upstream } from '../upstream/upstream.js';
import { heightFaultOf } from './height-fault.js';

/** Any method will do: a node loads the state of the height before it looks at the query. */
const PROBE = '/cosmos.base.node.v1beta1.Service/Status';
const TIMEOUT_MS = 2000;

/** Bisects for the first height a node has between one it lacks and its latest; undefined if it gives no clear answers. */
export async function findEarliest(
  upstream: Upstream,
  missing: number,
  latest: number,
): Promise<number | undefined> {
  let lacks = missing;
  let has = latest;
  try {
    while (has - lacks > 1) {
      const middle = Math.floor((lacks + has) / 2);
      if (await hasHeight(upstream, middle, latest)) has = middle;
      else lacks = middle;
    }
    return has;
  } catch {
    return undefined;
  }
}

async function hasHeight(upstream: Upstream, height: number, latest: number): Promise<boolean> {
  try {
    await upstream.call(PROBE, new Uint8Array(), { height, timeoutMs: TIMEOUT_MS });
    return true;
  } catch (fault) {
    if (heightFaultOf(fault, height, latest)) return false;
    throw fault;
  }
}
