// Loaded into a host: prints how long it blocked its event loop at most, in milliseconds of its own processor time, when it
// receives SIGUSR2, and begins again. Time in which other processes had the processor does not count.
const TICK_MS = 2;

let longest = 0;
let before = process.threadCpuUsage();
setInterval(() => {
  const { user, system } = process.threadCpuUsage(before);
  longest = Math.max(longest, (user + system) / 1000);
  before = process.threadCpuUsage();
}, TICK_MS).unref();

process.on('SIGUSR2', () => {
  process.stdout.write(`blocked: ${longest}\n`);
  longest = 0;
});
