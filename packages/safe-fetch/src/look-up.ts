import { lookup, Resolver } from 'node:dns/promises';

/** Every address of a host name; a signal ends the search. */
export type AddressLookup = (hostname: string, signal: AbortSignal) => Promise<readonly string[]>;

/** Time for one name server to answer, and how often it is asked. */
const TIMEOUT_MS = 3000;
const TRIES = 2;

/** Asks the system, which knows hosts files and search domains, on one of the few threads that files are read with. */
export const systemLookup: AddressLookup = async (hostname) => {
  const answers = await lookup(hostname, { all: true });
  return answers.map(({ address }) => address);
};

/** Asks name servers, the system's unless told: names that strangers chose take no thread however slow they are. */
export const dnsLookup =
  (servers?: readonly string[]): AddressLookup =>
  async (hostname, signal) => {
    // RFC 6761: no name server is to be asked.
    if (/(^|\.)localhost\.?$/.test(hostname)) return ['127.0.0.1'];
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
    if (servers) resolver.setServers(servers);
    const cancel = () => resolver.cancel();
    signal.addEventListener('abort', cancel, { once: true });
    try {
      return await addressesOf(hostname, resolver);
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  };

/** Of both kinds; one kind alone will do. */
async function addressesOf(hostname: string, resolver: Resolver): Promise<string[]> {
  const answers = await Promise.allSettled([
    resolver.resolve4(hostname),
    resolver.resolve6(hostname),
  ]);
  const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  const [first] = answers;
  if (found.length === 0 && first.status === 'rejected') throw first.reason;
  return found;
}
