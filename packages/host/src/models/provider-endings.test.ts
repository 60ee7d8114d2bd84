import { describe, expect, it } from 'vitest';
import {
  collect,
  hello,
  providers,
  toModelCall,
  useProviders,
} from '../../test/support/model-servers/scripted-provider.ts';

import { withTimeouts } from './retry.js';

const open = useProviders();

describe.each(providers)('createProviderModel for %s', (provider) => {
  it.each(['stalls-before-headers', 'stalls-before-finish'] as const)(
    'an abort while it %s closes the connection',
    async (ending) => {
      const { model, server } = await open(provider, { ...hello, ending });
      const stop = new AbortController();
      const reason = new Error('enough');
      const running = collect(model, toModelCall({ signal: stop.signal }));
      await expect.poll(() => server.requests.length).toBe(1);
      stop.abort(reason);
      expect((await running).fault).toBe(reason);
      expect(await server.requests[0]?.wasLeft).toBe(true);
    },
  );

  it('closes the connection when the consumer stops early', async () => {
    const { model, server } = await open(provider, { ...hello, ending: 'stalls-before-finish' });
    for await (const part of model.stream(toModelCall())) if (part.type === 'text') break;
    expect(await server.requests[0]?.wasLeft).toBe(true);
  });

  it('sends no request when aborted before', async () => {
    const { model, server } = await open(provider, hello);
    const reason = new Error('never mind');
    const { fault } = await collect(model, toModelCall({ signal: AbortSignal.abort(reason) }));
    expect(fault).toBe(reason);
    expect(server.requests).toEqual([]);
  });
});

describe.each(providers)('createProviderModel for %s that stops sending', (provider) => {
  it.each([
    ['stalls-before-headers', ''],
    ['stalls-before-finish', 'Hello wörld'],
  ] as const)('%s: the call times out, and received parts are kept', async (ending, said) => {
    const { model, server } = await open(provider, { ...hello, ending });
    // Long enough for all that comes, and for the request to arrive, however busy the machine is.
    const firstPartMs = said ? 60_000 : 2_000;
    const hasty = withTimeouts(model, { firstPartMs, stallMs: 2_000 });
    const { fault, text } = await collect(hasty);
    expect(fault).toMatchObject({ kind: 'timeout', retryable: true });
    expect(text).toBe(said);
    expect(await server.requests[0]?.wasLeft).toBe(true);
  });
});
