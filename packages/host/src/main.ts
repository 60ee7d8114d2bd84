// Modules that need a recent Node are imported only after its version is checked.
const REQUIRED_NODE = 24;
/** By then, most machines have loaded everything. */
const START_MS = 1500;
/** They optimize code for many runs; that of the start runs once. */
const COMPILERS = ['maglev', 'turbofan'];

if (Number(process.versions.node.split('.')[0]) < REQUIRED_NODE) {
  process.stderr.write(
    `Sibyl needs Node ${REQUIRED_NODE} or later, this is ${process.version}: start it with "npm start", which uses its own Node\n`,
  );
  process.exitCode = 1;
} else {
  await startLean();
  await cacheCompiledCode();
  // First, because in the bundle the order of modules with side effects is not certain.
  await import('reflect-metadata');
  const { serve } = await import('./serve.js');
  process.exitCode = await serve();
}

async function startLean(): Promise<void> {
  const { setFlagsFromString } = await import('node:v8');
  for (const compiler of COMPILERS) setFlagsFromString(`--no-${compiler}`);
  setTimeout(() => {
    for (const compiler of COMPILERS) setFlagsFromString(`--${compiler}`);
    void keepHeapSmall();
  }, START_MS).unref();
}

/**
 * V8 doubles its young generation up to 48 MB during a burst of requests, and keeps it; on a busy machine it also collects
 * the old one late, when it is several times as large as what is in use. It may be twice as large: less would cost a tenth of
 * the processor time of a turn. Loading the code is a burst too, and faster with a large heap: the limits apply after it, and
 * the heap is shrunk once.
 */
async function keepHeapSmall(): Promise<void> {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--semi-space-growth-factor=1');
  setFlagsFromString('--heap-growing-percent=100');
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  setFlagsFromString('--no-expose-gc');
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

/** In a folder beside the code, where only users who can change the code can write. */
async function cacheCompiledCode(): Promise<void> {
  const { enableCompileCache } = await import('node:module');
  const { fileURLToPath } = await import('node:url');
  enableCompileCache(fileURLToPath(new URL('../.cache', import.meta.url)));
}
