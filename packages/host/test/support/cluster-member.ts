import { joinCluster } from '../../src/bus/cluster.js';

// A host in another process for the tests of clusters: joins, prints its id and runs until it is killed.
const logger = { error: () => {}, warn: () => {}, info: () => {} };
try {
  const { hostId } = await joinCluster({ ...JSON.parse(process.argv[2] ?? '{}'), logger });
  process.stdout.write(`${hostId}\n`);
  setInterval(() => {}, 60_000);
} catch (error) {
  process.stderr.write(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
