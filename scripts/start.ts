// Builds what changed since the last start, then runs the host in this process.
import { buildIfChanged, MAIN } from './build.ts';

/** npm's shell does not pass signals on, so the host notices by itself that npm has gone. */
function stopWithParent(): void {
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    process.kill(process.pid, 'SIGTERM');
  }, 500);
  watch.unref();
}

stopWithParent();
const failure = await buildIfChanged();
if (failure) process.exitCode = failure;
else await import(`../${MAIN}`);
