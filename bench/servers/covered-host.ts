// The host from its compiled files, one for each source file, which counts the functions that it runs. It answers `take` with
// those that it has run since the last time.
import { Session } from 'node:inspector/promises';
import { fileURLToPath } from 'node:url';
import { createOracleApp } from '@sibyl/host';

const COMPILED = /\/(packages|plugins)\/[\w-]+\/dist\//;

const session = new Session();
session.connect();
await session.post('Profiler.enable');
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });

/** The functions that have run since the last time, as `file:offset`. */
async function takeFunctions(): Promise<string[]> {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  return result
    .filter(({ url }) => COMPILED.test(url))
    .flatMap(({ url, functions }) =>
      functions.flatMap(({ functionName, ranges: [range] }) => {
        const isModule = functionName === '' && range?.startOffset === 0;
        if (!range || range.count === 0 || isModule) return [];
        return [`${fileURLToPath(url)}:${range.startOffset}`];
      }),
    );
}

const app = await createOracleApp();
process.on('message', async () => process.send?.({ functions: await takeFunctions() }));
process.send?.({ url: await app.listen(), did: app.did });
