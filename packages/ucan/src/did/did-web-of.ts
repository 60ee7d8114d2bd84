import type { Result } from '@sibyl/protocol';
import { refuseDid } from './did-fault.js';
import type { DidFault } from './did-resolver.js';

/** The did:web that the service at an address must prove to be. */
export function didWebOf(address: string): Result<string, DidFault> {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.search) {
    return refuseDid('did_invalid', 'a service address is http(s)://host/path');
  }
  const path = url.pathname.split('/').filter(Boolean);
  return { ok: ['did:web', url.host.replace(':', '%3A'), ...path].join(':') };
}
